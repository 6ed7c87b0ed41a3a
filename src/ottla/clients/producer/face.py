"""What users call: `Producer` blocks and may be shared by threads, `AsyncProducer` belongs to one asyncio loop.

Both hand records to the core and wait; neither decides anything. `send()` of the blocking face is the accumulator's as
long as there is an open batch with room; the loop in its thread is only woken for a new batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, Unpack

from ottla.clients.cluster import PartitionInfo
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped, when_dropped_async
from ottla.clients.errors import ClientError, Closed, RequestTimedOut
from ottla.clients.options import merged
from ottla.clients.producer.batch import (
    COMPILED,
    NO_HEADERS,
    Batch,
    BlockingDelivery,
    Delivery,
    Front,
    Headers,
    in_callback,
)
from ottla.clients.producer.lifetime import open_producers, unacknowledged
from ottla.clients.producer.metrics import metrics
from ottla.clients.producer.partitioner import checked_partition, read_partitioner
from ottla.clients.producer.sender import CallSoon, Sender
from ottla.clients.producer.serializers import as_bytes, serialize, serializer_for
from ottla.clients.producer.settings import read_settings
from ottla.clients.producer.waiting import (
    AsyncBatches,
    AsyncDelivery,
    BlockingBatches,
    BlockingWaits,
    settle,
    wait,
    wait_async,
)
from ottla.clients.typed_settings import ProducerConfig
from ottla.clients.values import as_timestamp_ms

if TYPE_CHECKING:
    from ottla.clients.producer.batch import Encoded
    from ottla.clients.producer.events import Effect


class ArrowRows(Protocol):
    """Rows in Arrow's memory layout, by its PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with an ArrowArrayStream."""
        ...


D = TypeVar("D", bound=Delivery)
T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=Any)
    V = TypeVarWithDefault("V", default=Any)
else:  # typing's has defaults from Python 3.13 on
    K, V = TypeVar("K"), TypeVar("V")

logger = logging.getLogger("ottla.clients.producer")

CLOSE_TIMEOUT_S = 30.0


class _Face(Generic[D]):
    """What both faces share: settings, serializers, and records into the core."""

    _delivery: type[D]

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        options, self._settings = read_settings(merged(config, settings))
        self._key_serializer = serializer_for("key.serializer", options["key_serializer"])
        self._value_serializer = serializer_for("value.serializer", options["value_serializer"])
        choose, self._partitioner = read_partitioner(options["partitioner"])
        self._choose = choose
        self._options = options
        self._closed = False

    def _start(self, call_soon: CallSoon) -> None:
        """Create the core and the thing that runs it; `call_soon` has the producer's loop call a function."""
        self._sender = Sender(self._options, self._settings, self._choose, call_soon)
        self._core = self._sender.core
        self._lock = self._sender.lock

    def _append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        callback: Callable[[D], object] | None,
    ) -> D | None:
        """One try, under the lock."""
        if self._partitioner is not None and partition is None:
            count = self._core.partition_count(topic)
            if not count:
                return None
            partition = checked_partition(self._partitioner(topic, key, value, count), topic, count)
        return self._core.append(topic, partition, key, value, headers, timestamp_ms, self._delivery, callback)

    def _append_encoded(self, topic: str, pieces: list[tuple[int, Encoded]], made: list[Batch]) -> bool | None:
        """Move batches from the front of `pieces` to the core and to `made`, under the lock; None if some are left."""
        while pieces:
            batch = self._core.append_encoded(topic, *pieces[0])
            if batch is None:
                return None
            made.append(batch)
            del pieces[0]
        return True

    def _encode_rows(self, topic: str, rows: Any, count: int) -> Iterator[list[tuple[int, Encoded]]]:
        from ottla.clients.producer.columns import encode_rows

        available = self._sender.available(topic, count)
        return encode_rows(rows, count, self._settings, time_ns() // 1_000_000, available, self._chooser(topic, count))

    def metrics(self) -> dict[str, float]:
        """Counts of records, bytes and connections, by the names of Kafka's producer; `-total` only grows."""
        return {**self._sender.cluster.metrics(), **metrics(self._core)}

    def _chooser(self, topic: str, count: int) -> Callable[[bytes | None, bytes | None], int] | None:
        """How `send_batch` finds the partition of a row that names none; None if the kernel does."""
        choose, partitioner = self._choose, self._partitioner
        if partitioner is not None:
            return lambda key, value: checked_partition(partitioner(topic, key, value, count), topic, count)
        return None if choose is None else lambda key, _: choose(key, count)

    def _purged(self, *, in_queue: bool, in_flight: bool) -> list[Effect]:
        with self._lock:
            return self._core.purge(in_queue=in_queue, in_flight=in_flight)

    def _prepare(
        self, topic: str, key: object, value: object, headers: object, timestamp_ms: Any
    ) -> tuple[bytes | None, bytes | None, Headers, int]:
        """Key, value, headers and timestamp as the core takes them."""
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"A topic must be a str, not {type(topic).__name__}")
        if self._key_serializer is not None:
            key = serialize(self._key_serializer, "key", topic, key, headers)
        if self._value_serializer is not None:
            value = serialize(self._value_serializer, "value", topic, value, headers)
        timestamp_ms = _checked_timestamp(timestamp_ms)
        return as_bytes(key, "key"), as_bytes(value, "value"), _checked_headers(headers), timestamp_ms

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The producer was closed")

    def _refuse_if_hopeless(self, topic: str, partition: int | None, since: int) -> None:
        """Raise at once what waiting would not change; under the lock, after a try that failed."""
        refusal = self._core.refusal(topic, partition, since)
        if refusal is not None:
            raise refusal

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self._closed else 'open'}>"


def _checked_timestamp(timestamp_ms: Any) -> int:
    """The timestamp of a record in ms since the epoch, which is now if none is given. Raises ValueError."""
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
            name.encode()  # a ValueError now, not when its record has a place already
        checked.append((name, as_bytes(value, "header's value")))
    return checked


class Producer(Front, _Face[BlockingDelivery], Generic[K, V]):
    """Sends records to topics; made of settings by Kafka's names or Python's.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("flights", b"value", key=b"JFK").result()

    May be shared by threads, not across a fork. Raises ConfigurationError; connects when the first record is sent.
    """

    _delivery = BlockingDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        super().__init__(config, **settings)
        self._driver = Driver("ottla-producer")
        self._start(self._driver.call_soon)
        # The core must not refer to the producer, or a dropped producer would never be collected.
        self._waits = BlockingWaits(self._sender, self._driver)
        self._core.shell.hurry = self._waits.hurry
        self._core.shell.wait = self._waits.wait
        sender = self._sender
        self._dropped = when_dropped(self, sender.describe, self._driver, lambda: sender.finish(unacknowledged()))
        self._accumulator = self._core.accumulator
        self._clock = time_ns
        open_producers.add(self)
        # Records go straight into their batch unless something of the user's has to see them, or a lock is needed.
        self._is_direct = COMPILED and not (self._key_serializer or self._value_serializer or self._partitioner)

    if TYPE_CHECKING:

        def send(
            self,
            topic: str,
            value: V | None = None,
            key: K | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | datetime | None = None,
            headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
            callback: Callable[[BlockingDelivery], object] | None = None,
        ) -> BlockingDelivery: ...

    def _check_open(self) -> None:
        if self._closed:
            self._driver.check()
            raise Closed("The producer was closed")

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: Any,
        headers: Any,
        callback: Callable[[BlockingDelivery], object] | None,
    ) -> BlockingDelivery:
        """What `send` does not do itself."""
        if not self._is_direct or type(value) is not bytes or headers is not NO_HEADERS or self._closed:
            key, value, headers, timestamp_ms = self._prepare(topic, key, value, headers, timestamp_ms)
        else:
            key, timestamp_ms = as_bytes(key, "key"), _checked_timestamp(timestamp_ms)
        with self._lock:
            delivery = self._append(topic, partition, key, value, headers, timestamp_ms, callback)
        if delivery is None:
            return self._append_in_time(topic, partition, key, value, headers, timestamp_ms, callback)
        if self._core.needs_step:
            self._sender.wake()
        return delivery

    def _append_in_time(self, topic: str, partition: int | None, *rest: Any) -> BlockingDelivery:
        return self._wait_for_room(topic, partition, lambda: self._append(topic, partition, *rest))

    def send_batch(self, topic: str, rows: ArrowRows) -> BlockingBatches:
        """The future of all rows, which keep their order within each partition.

        Rows are a pyarrow Table or RecordBatch, a DataFrame of pandas or polars, a relation of DuckDB, or anything else
        with `__arrow_c_stream__`. Columns: `value` and `key` (binary or string), and optionally `partition` (integers),
        `timestamp` (integers in ms or Arrow timestamps) and `headers` (lists of structs of name and value, or maps).
        Serializers are not used; a `partitioner` is. Blocks and raises as `send`, and ValueError for other columns,
        TypeError for other rows.
        """
        self._check_open()
        from ottla.clients.producer.columns import Window, as_arrow

        rows = as_arrow(rows)

        count = self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        pieces = self._encode_rows(topic, rows, count)
        window = Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            self._wait_for_room(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.announced and not self._driver.is_current_thread:
                wait(awaited, self._settings.delivery_timeout_ms / 1000 + 1)
        return BlockingBatches(batches)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of the topic with their leaders and replicas. Blocks and raises as `send`."""
        self._check_open()
        self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        return self._sender.cluster.view.partition_infos(topic)

    def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Give up records: those not sent yet (`in_queue`), and those sent but not acknowledged (`in_flight`).

        They fail with Purged; their callbacks run in the producer's thread. What was sent may have been written all the
        same.
        """
        self._check_open()
        self._driver.call_soon(self._sender.obey, self._purged(in_queue=in_queue, in_flight=in_flight))

    def flush(self, timeout_s: float | None = None) -> int:
        """How many of the records sent so far are neither acknowledged nor failed: 0 unless time ran out. Blocks.

        The callbacks of the others have run.
        """
        self._driver.check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            batches = self._core.begin_flush()
        self._sender.wake()
        try:
            for batch in batches:
                if not batch.announced:
                    self._waits.wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        except RequestTimedOut:
            return sum(batch.count for batch in batches if not batch.announced)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds; what is left fails with Closed. Blocks; a second time does nothing.

        Raises ClientError in a callback.
        """
        if self._closed:
            return
        if self._driver.is_current_thread:  # before anything is half closed: others wait for what is on its way
            raise ClientError("A callback must not close its producer: it would wait for itself")
        self._closed = True
        self._dropped.detach()
        try:
            self.flush(timeout_s)
        finally:  # after Ctrl-C too: other threads may wait for what is left
            try:
                self._driver.run(self._sender.close(unacknowledged()))
            finally:
                self._driver.close()

    def _wait_for_room(self, topic: str, partition: int | None, attempt: Callable[[], T | None]) -> T:
        """What `attempt` gives under the lock, as soon as that is not None."""
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.metadata_version
        while True:
            changed = allocate_lock()
            changed.acquire()
            with self._lock:
                made = attempt()
                if made is None:
                    self._refuse_if_hopeless(topic, partition, since)
                    self._core.wait_for_change(changed.release)
            if self._core.needs_step:
                self._sender.wake()
            if made is not None:
                return made
            if self._driver.is_current_thread:
                raise ClientError("No room for a record that a callback sends, and a callback must not wait")
            if not changed.acquire(timeout=max(0.0, deadline - time.monotonic())):
                with self._lock:
                    raise self._core.obstacle(topic, partition)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncProducer(_Face[AsyncDelivery], Generic[K, V]):
    """Sends records to topics from asyncio; made of settings by Kafka's names or Python's.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            await (await producer.send("flights", b"value", key=b"JFK"))

    Belongs to the loop on which its methods are first called. Raises ConfigurationError.
    """

    _delivery = AsyncDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: Unpack[ProducerConfig]) -> None:
        super().__init__(config, **settings)
        self._start(lambda turn: asyncio.get_running_loop().call_soon(turn))
        self._core.shell.hurry = self._sender.wake
        sender = self._sender
        self._dropped = when_dropped_async(
            self, sender.describe, lambda: sender.loop, lambda: sender.finish(unacknowledged())
        )

    def _check_open(self) -> None:
        super()._check_open()
        self._sender.check_loop()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        callback: Callable[[AsyncDelivery], object] | None = None,
    ) -> AsyncDelivery:
        """The future of the record: await it for its acknowledgement. As `Producer.send`; waits instead of blocking."""
        record = self._prepare(topic, key, value, headers, timestamp_ms)
        return await self._wait_for_room(topic, partition, lambda: self._append(topic, partition, *record, callback))

    async def send_batch(self, topic: str, rows: ArrowRows) -> AsyncBatches:
        """The future of all rows: await it for their AppendedRanges. As `Producer.send_batch`."""
        self._check_open()
        from ottla.clients.producer.columns import Window, as_arrow

        rows = as_arrow(rows)

        count = await self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        pieces = self._encode_rows(topic, rows, count)
        window = Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            await self._wait_for_room(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            await asyncio.sleep(0)  # all else on the loop has its turn, and the group is sent
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.announced:
                await wait_async(awaited)
        return AsyncBatches(batches)

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of the topic with their leaders and replicas. Waits and raises as `send`."""
        self._check_open()
        await self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        return self._sender.cluster.view.partition_infos(topic)

    async def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Give up records, as `Producer.purge`; their callbacks have been called when this returns."""
        self._check_open()
        self._sender.obey(self._purged(in_queue=in_queue, in_flight=in_flight))

    async def flush(self, timeout_s: float | None = None) -> int:
        """How many of the records sent so far are neither acknowledged nor failed: 0 unless time ran out.

        The callbacks of the others have run, coroutines included. Raises ClientError in a callback.
        """
        if in_callback.get():
            raise ClientError("A callback must not flush or close its producer: it would wait for itself")
        self._sender.check_loop()
        with self._lock:
            batches = self._core.begin_flush()
        self._sender.wake()
        try:
            async with asyncio.timeout(timeout_s):
                for batch in batches:
                    if not batch.announced:
                        await wait_async(batch)
        except TimeoutError:
            return sum(batch.count for batch in batches if not batch.announced)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds; what is left fails with Closed. A second time does nothing."""
        if self._closed:
            return
        if in_callback.get():
            raise ClientError("A callback must not flush or close its producer: it would wait for itself")
        self._sender.check_loop()
        self._closed = True
        self._dropped.detach()
        try:
            await self.flush(timeout_s)
        finally:
            await self._sender.close(unacknowledged())

    async def _wait_for_room(self, topic: str, partition: int | None, attempt: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.metadata_version
        while True:
            with self._lock:
                made = attempt()
                if made is None:
                    self._refuse_if_hopeless(topic, partition, since)
                    changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._core.wait_for_change(lambda changed=changed: settle(changed))  # type: ignore[misc]
            if self._core.needs_step:
                self._sender.wake()
            if made is not None:
                return made
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await changed
            except TimeoutError:
                with self._lock:
                    raise self._core.obstacle(topic, partition) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
