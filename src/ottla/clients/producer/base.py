"""Common parts of the blocking and the asyncio producer: settings, serializers, and the calls of the core.

Coroutine functions are the bodies of methods of both: see `ottla.clients.waits`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.errors import (
    ClientError,
    Closed,
    ConfigurationError,
    ProducerUnusable,
    RequestTimedOut,
    TransactionFailed,
)
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.clients.options import merged
from ottla.clients.producer._encoder import NO_HEADERS, Delivery, Encoded, Headers
from ottla.clients.producer.accumulator import SerializedRecord
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.core import metrics
from ottla.clients.producer.partitioner import checked_partition, read_partitioner
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.serializers import as_bytes, serialize, serializer_for
from ottla.clients.producer.settings import read_settings
from ottla.clients.producer.transaction_requests import Identity, OffsetsOfGroup
from ottla.clients.producer.transactions import Call, Transactions
from ottla.clients.typed_settings import ProducerConfig
from ottla.clients.values import as_timestamp_ms
from ottla.clients.waits import AsyncWaits, Waits, finish
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import weakref

    from ottla.clients.consumer import AsyncConsumer, Consumer

    AnyConsumer: TypeAlias = Consumer[Any, Any] | AsyncConsumer[Any, Any]

logger = logging.getLogger("ottla.clients.producer")
CLOSE_TIMEOUT_S = 30.0
D = TypeVar("D", bound=Delivery)
R = TypeVar("R")
EndTransaction: TypeAlias = Callable[[BaseException | None], Coroutine[Any, Any, None]]
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
    _dropped: weakref.finalize[Any, Any]

    def __init__(
        self, waits: Waits, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]
    ) -> None:
        self._waits = waits
        options, self._settings = read_settings(merged(config, settings))
        key, value, may_defer = options["key_serializer"], options["value_serializer"], isinstance(waits, AsyncWaits)
        self._key_serializer = serializer_for("key.serializer", key, deferring=may_defer)
        self._value_serializer = serializer_for("value.serializer", value, deferring=may_defer)
        self._adds_headers = any(getattr(each, "writes_headers", False) for each in (key, value))
        self._choose, self._partitioner = read_partitioner(options["partitioner"])
        self._sender = Sender(options, self._settings, self._choose)
        self._core = self._sender.core
        self._accumulator = self._core.accumulator
        self._lock = self._sender.lock
        self._closed = False

    def _check_may_wait(self, what: str) -> None:
        """Raise ClientError in a callback, and where the producer cannot be used."""
        raise NotImplementedError

    @property
    def _may_wait(self) -> bool:
        """Whether `send` may wait: False in the thread of a blocking producer, whose callbacks would stop it."""
        return True

    async def _wait_for_batch(self, batch: Batch, timeout_s: float | None) -> None:
        """Wait until the batch is announced. Raises RequestTimedOut."""
        raise NotImplementedError

    # --- records ------------------------------------------------------------------------------------------------

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

    async def _append_or_wait(self, topic: str, partition: int | None, attempt: Callable[[], R | None]) -> R:
        """Call `attempt` under the lock until it returns something other than None; returns that.

        Between attempts the caller waits until memory is released or the metadata changes. Raises immediately if that
        cannot help, and after max.block.ms.
        """
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.refresh.version
        while True:
            changed = self._waits.event()
            with self._lock:
                made = attempt()
                if made is None:
                    error = self._accumulator.immediate_error(topic, partition, since)
                    if error is not None:
                        raise error
                    self._accumulator.wait_for_change(changed.set)
            if self._accumulator.needs_step:
                self._sender.wake()
            if made is not None:
                return made
            if not self._may_wait:
                raise ClientError(
                    "send() in a callback would have to wait for memory or metadata, and a callback must not wait"
                )
            if not await changed.until(max(0.0, deadline - time.monotonic())):
                with self._lock:
                    raise self._accumulator.timeout_error(topic, partition)

    async def _known_partitions(self, topic: str) -> int:
        self._check_open()
        return await self._append_or_wait(topic, None, lambda: self._accumulator.partition_count(topic) or None)

    async def _send_batch(self, topic: str, rows: ArrowRows) -> list[Batch]:
        self._check_open()
        rows = late.columns.as_arrow(rows)
        count = await self._known_partitions(topic)
        chooser = self._chooser(topic, count)
        now_ms = time_ns() // 1_000_000
        pieces = late.columns.encode_rows(
            rows, count, self._settings, now_ms, self._sender.available(topic, count), chooser
        )
        window = late.columns.Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            await self._append_or_wait(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            await self._waits.pause()  # lets the loop send the group
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.announced and self._may_wait:
                await self._wait_for_batch(awaited, self._settings.delivery_timeout_ms / 1000 + 1)
        return batches

    def _append_encoded(self, topic: str, pieces: list[tuple[int, Encoded]], made: list[Batch]) -> bool | None:
        """Move batches from the front of `pieces` to the core and to `made`; needs the lock. None if some remain."""
        while pieces:
            batch = self._accumulator.append_encoded(topic, *pieces[0])
            if batch is None:
                return None
            made.append(batch)
            del pieces[0]
        return True

    # --- outcomes -----------------------------------------------------------------------------------------------

    async def _partitions_for(self, topic: str) -> list[PartitionInfo]:
        await self._known_partitions(topic)
        return self._sender.cluster.view.partition_infos(topic)

    async def _client_instance_id(self, timeout_s: float) -> str:
        self._check_may_wait("wait for its client instance id")
        return await self._waits.run(self._sender.cluster.client_instance_id(timeout_s))

    async def _flush(self, timeout_s: float | None) -> int:
        self._check_may_wait("flush or close its producer")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            batches = self._core.begin_flush()
        self._sender.wake()
        try:
            for batch in batches:
                if not batch.announced:
                    left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                    await self._wait_for_batch(batch, left_s)
        except RequestTimedOut:
            return sum(batch.count for batch in batches if not batch.announced)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    async def _close(self, timeout_s: float) -> None:
        if self._closed:
            return
        self._check_may_wait("flush or close its producer")  # first: a half-closed producer would strand waiters
        self._closed = True
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        try:
            with self._lock:
                call = self._core.begin_close()
            if call is not None:
                self._sender.wake()
                try:
                    await self._wait_for_call(call, timeout_s)
                except ClientError as error:
                    logger.warning(
                        "The transaction had no outcome when the producer was closed, the broker aborts it after "
                        "transaction.timeout.ms unless it is committed already: %s",
                        error,
                    )
            await self._flush(max(0.0, deadline - time.monotonic()))
        finally:  # after Ctrl-C too: other threads may wait for remaining records
            try:
                await self._waits.run(self._sender.close(unacknowledged()))
            finally:
                self._waits.close()

    async def _exit(self, error: BaseException | None) -> None:  # noqa: ARG002 - of contexts
        await self._close(CLOSE_TIMEOUT_S)

    # --- transactions -------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[Transactions], R]) -> R:
        """Make a call of the program to its transactions. One that waits for a response wakes the sender, too."""
        self._check_open()
        with self._lock:
            return self._core.call(call)

    async def _wait_for(self, begin: Callable[[Transactions], Call], timeout_s: float | None) -> None:
        """Make a call, and wait for it at most `timeout_s` (max.block.ms)."""
        self._check_may_wait("wait for a transaction")
        call = self._call(begin)
        self._sender.wake()
        await self._wait_for_call(call, self._settings.max_block_ms / 1000 if timeout_s is None else timeout_s)

    async def _wait_for_call(self, call: Call, timeout_s: float) -> None:
        """Wait until the call is done, and raise its error. Raises RequestTimedOut."""
        done = self._waits.event()
        with self._lock:
            if call.done:
                done.set()
            else:
                call.waiters.append(done.set)
        if not await done.until(timeout_s):
            raise RequestTimedOut(
                f"No outcome after {timeout_s:g} s; the producer keeps trying: make the same call again to wait for it"
            )
        if call.error is not None:
            raise call.error

    def _transaction(self, consumer: AnyConsumer | None) -> tuple[Callable[[], object], EndTransaction]:
        """How to begin and end a transaction in a `with` statement. Raises ConfigurationError."""
        if consumer is not None and consumer.auto_commits:
            raise ConfigurationError(
                "enable.auto.commit is true: the consumer would commit offsets whose transaction may be aborted, and "
                "their records would be skipped. Create it with enable_auto_commit=False: the transaction commits its "
                "offsets"
            )
        begin = partial(self._call, lambda transactions: transactions.begin())
        return begin, lambda error: self._end_transaction(error, consumer)

    async def _end_transaction(self, error: BaseException | None, consumer: AnyConsumer | None) -> None:
        """Commit the transaction of a `with` block, with the offsets of `consumer`; abort it after an error."""
        if not self.in_transaction:
            return
        if error is not None:
            await self._abort_after(error, consumer)
            return
        try:
            if consumer is not None:
                row = offsets_of_group(consumer.offsets_to_commit(), consumer.group_metadata())
                if row.offsets:
                    await self._wait_for(lambda transactions: transactions.send_offsets(row), None)
        except BaseException as failed:
            await self._abort_after(failed, consumer)
            raise
        try:
            await self._wait_for(lambda transactions: transactions.commit(None), None)
        except TransactionFailed as failed:
            await self._abort_after(failed, consumer)
            raise

    async def _abort_after(self, error: BaseException, consumer: AnyConsumer | None) -> None:
        try:
            await self._wait_for(lambda transactions: transactions.abort(), None)
        except ClientError as failed:
            # An abort that failed leaves a producer to close, or a call to repeat: the program must hear of it. But an
            # interrupt stays an interrupt, and an error that says to close the producer stays.
            if isinstance(error, Exception) and not isinstance(error, ProducerUnusable) and failed is not error:
                raise
        finally:
            if consumer is not None:
                consumer.seek_to_committed()

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
    def failure(self) -> ClientError | None:
        """The error that stopped the producer for good: only a new producer can send. None while it works."""
        return self._core.accumulator.fatal

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

    def _prepare(self, topic: str, key: object, value: object, headers: Any, timestamp_ms: Any) -> SerializedRecord:
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"A topic must be a str, not {type(topic).__name__}")
        if self._adds_headers:
            headers = list(headers.items() if isinstance(headers, Mapping) else headers)
        if self._key_serializer is not None:
            key = serialize(self._key_serializer, "key", topic, key, headers)
        if self._value_serializer is not None:
            value = serialize(self._value_serializer, "value", topic, value, headers)
        timestamp_ms = checked_timestamp(timestamp_ms)
        return as_bytes(key, "key"), as_bytes(value, "value"), _checked_headers(headers), timestamp_ms

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The producer was closed")

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


def unacknowledged() -> Closed:
    return Closed("The producer was closed before the record was acknowledged")


def offsets_of_group(offsets: Mapping[Any, int | OffsetAndMetadata], group: str | GroupMetadata) -> OffsetsOfGroup:
    """Check the arguments of `send_offsets_to_transaction`. Raises ValueError, TypeError and ConfigurationError."""
    member = GroupMetadata(group) if isinstance(group, str) else group
    if not isinstance(member, GroupMetadata):
        raise TypeError(f"The group must be a group id or the group_metadata() of a consumer, not {group!r}")
    if not member.group_id:
        raise ConfigurationError("Offsets need a group: create the consumer with a group_id, or pass a group id")
    group_id, generation, member_id, instance_id, report = member
    rows = {}
    for tp, given in offsets.items():
        row = (given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)).checked()
        rows[TopicPartition(*tp)] = row if row.metadata else OffsetAndMetadata(row.offset, row.leader_epoch, report)
    return OffsetsOfGroup(group_id, generation, member_id, instance_id, rows)


class TransactionScope:
    """A transaction in a `with` statement: committed at its end, aborted after an exception.

    The offsets of a consumer are committed in it; after an abort the consumer returns to its committed offsets.
    """

    def __init__(self, begin: Callable[[], object], end: EndTransaction) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._end(error))


class AsyncTransactionScope:
    """As `TransactionScope`, in an `async with` statement."""

    def __init__(self, begin: Callable[[], object], end: EndTransaction) -> None:
        self._begin = begin
        self._end = end

    async def __aenter__(self) -> None:
        self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)
