"""What the blocking and the asyncio producer share: settings, serializers, and access to the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack

from ottla.clients import late
from ottla.clients.errors import Closed
from ottla.clients.options import merged
from ottla.clients.producer._encoder import NO_HEADERS, Delivery, Encoded, Headers
from ottla.clients.producer.accumulator import SerializedRecord
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.effects import Effect
from ottla.clients.producer.metrics import metrics
from ottla.clients.producer.partitioner import checked_partition, read_partitioner
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.serializers import as_bytes, serialize, serializer_for
from ottla.clients.producer.settings import read_settings
from ottla.clients.producer.transaction_requests import Identity
from ottla.clients.producer.transactions import Call, Transactions
from ottla.clients.typed_settings import ProducerConfig
from ottla.clients.values import as_timestamp_ms

CLOSE_TIMEOUT_S = 30.0
D = TypeVar("D", bound=Delivery)
R = TypeVar("R")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=Any)
    V = TypeVarWithDefault("V", default=Any)
else:  # the TypeVar of `typing` has defaults from Python 3.13 on
    K, V = TypeVar("K"), TypeVar("V")


class ArrowRows(Protocol):
    """Rows in Arrow's memory layout, accessible by its PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with an ArrowArrayStream."""
        ...


class ProducerBase(Generic[D]):
    """Settings, serializers, and the calls of the core that append records."""

    _delivery: type[D]

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        options, self._settings = read_settings(merged(config, settings))
        self._key_serializer = serializer_for("key.serializer", options["key_serializer"])
        self._value_serializer = serializer_for("value.serializer", options["value_serializer"])
        self._choose, self._partitioner = read_partitioner(options["partitioner"])
        self._sender = Sender(options, self._settings, self._choose)
        self._core = self._sender.core
        self._accumulator = self._core.accumulator
        self._lock = self._sender.lock
        self._closed = False

    def _append(
        self, topic: str, partition: int | None, record: SerializedRecord, callback: Callable[[D], object] | None
    ) -> D | None:
        """Try to append a record; needs the lock. None as for `RecordAccumulator.append`."""
        if self._partitioner is not None and partition is None:
            count = self._accumulator.partition_count(topic)
            if not count:
                return None
            key, value, *_ = record
            partition = checked_partition(self._partitioner(topic, key, value, count), topic, count)
        return self._accumulator.append(topic, partition, record, self._delivery, callback)

    def _append_encoded(self, topic: str, pieces: list[tuple[int, Encoded]], made: list[Batch]) -> bool | None:
        """Move batches from the front of `pieces` to the core and to `made`; needs the lock. None if some remain."""
        while pieces:
            batch = self._accumulator.append_encoded(topic, *pieces[0])
            if batch is None:
                return None
            made.append(batch)
            del pieces[0]
        return True

    def _encode_rows(self, topic: str, rows: Any, count: int) -> Iterator[list[tuple[int, Encoded]]]:
        available = self._sender.available(topic, count)
        return late.columns.encode_rows(
            rows, count, self._settings, time_ns() // 1_000_000, available, self._chooser(topic, count)
        )

    def _limit_s(self, timeout_s: float | None) -> float:
        """How long a call waits: max.block.ms unless the program says otherwise."""
        return self._settings.max_block_ms / 1000 if timeout_s is None else timeout_s

    def _call(self, call: Callable[[Transactions], R]) -> R:
        """Make a call of the program to its transactions. One that waits for a response wakes the sender, too."""
        self._check_open()
        with self._lock:
            return self._core.call(call)

    def _begin_close(self) -> Call | None:
        """Abort an open transaction; the call to wait for, if any."""
        with self._lock:
            call = self._core.begin_close()
        if call is not None:
            self._sender.wake()
        return call

    def leave_transactions(self) -> Identity | None:
        """Forget the producer id between two transactions, and return it for `continue_transactions`. Does not wait.

        None where another process could not continue: before Kafka 4.0, or with transaction.version below 2 (KIP-890).
        Raises as `begin_transaction`.
        """
        return self._call(lambda transactions: transactions.leave())

    def continue_transactions(self, left: Identity) -> None:
        """Continue as the producer that has left its transactional id, instead of `init_transactions`.

        It saves a request, and ends nothing that was left open. At most one producer may continue with an identity: the
        brokers do not fence two of them from each other. If another one was initialized meanwhile, the first
        transaction fails as fenced. Does not wait. Raises as `begin_transaction`.
        """
        self._call(lambda transactions: transactions.continue_as(left))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: begun, and neither committed nor aborted yet."""
        transactions = self._core.transactions
        return transactions is not None and transactions.is_open

    def metrics(self) -> dict[str, float]:
        """Counts of records, bytes and connections, with Kafka's names. Those that end in `-total` never decrease."""
        return {**self._sender.cluster.metrics(), **metrics(self._core)}

    def _chooser(self, topic: str, count: int) -> Callable[[bytes | None, bytes | None], int] | None:
        """How `send_batch` chooses the partition of a row that names none; None if the row encoder does."""
        choose, partitioner = self._choose, self._partitioner
        if partitioner is not None:
            return lambda key, value: checked_partition(partitioner(topic, key, value, count), topic, count)
        return None if choose is None else lambda key, _: choose(key, count)

    def _purged(self, *, in_queue: bool, in_flight: bool) -> list[Effect]:
        with self._lock:
            return self._core.purge(in_queue=in_queue, in_flight=in_flight)

    def _prepare(self, topic: str, key: object, value: object, headers: object, timestamp_ms: Any) -> SerializedRecord:
        """Serialize and check a record."""
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"A topic must be a str, not {type(topic).__name__}")
        if self._key_serializer is not None:
            key = serialize(self._key_serializer, "key", topic, key, headers)
        if self._value_serializer is not None:
            value = serialize(self._value_serializer, "value", topic, value, headers)
        timestamp_ms = checked_timestamp(timestamp_ms)
        return as_bytes(key, "key"), as_bytes(value, "value"), _checked_headers(headers), timestamp_ms

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The producer was closed")

    def _raise_immediate_error(self, topic: str, partition: int | None, since: int) -> None:
        """Raise an error that waiting cannot change; needs the lock, after an attempt that failed."""
        error = self._accumulator.immediate_error(topic, partition, since)
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self._closed else 'open'}>"


def checked_timestamp(timestamp_ms: Any) -> int:
    """The timestamp of a record in ms since the epoch, by default now. Raises ValueError."""
    return time_ns() // 1_000_000 if timestamp_ms is None else as_timestamp_ms(timestamp_ms)


def _checked_headers(headers: Any) -> Headers:
    if not headers:
        return NO_HEADERS
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"The name of a header must be a str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()  # raises ValueError here, before the record is appended
        checked.append((name, as_bytes(value, "header's value")))
    return checked
