"""What users call: `Producer` blocks and may be shared by threads, `AsyncProducer` belongs to one asyncio loop.

Both hand records to the core and wait; neither decides anything. `send()` of the blocking face is the accumulator's as
long as there is an open batch with room; the loop in its thread is only woken for a new batch.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from _thread import allocate_lock
from collections.abc import Callable, Generator, Iterable, Mapping
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, Closed, ConfigurationError, RequestTimedOut
from ottla.clients.producer.batch import (
    COMPILED,
    NO_HEADERS,
    AppendedRange,
    Batch,
    Batches,
    BlockingDelivery,
    Delivery,
    Front,
    Headers,
    RecordMetadata,
)
from ottla.clients.producer.direct import PATIENCE_S, Direct
from ottla.clients.producer.partitioner import Partitioner
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.serializers import as_bytes, serialize, serializer_for
from ottla.clients.producer.settings import read_settings

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.clients.producer.batch import Encoded

D = TypeVar("D", bound=Delivery)
T = TypeVar("T")

CLOSE_TIMEOUT_S = 30.0
MAX_TIMESTAMP_MS = 2**63 - 1


class BlockingBatches(Batches):
    """The future of the rows of one `send_batch`."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> list[AppendedRange]:
        """Where the rows are, by partition, once all are acknowledged. Blocks.

        Raises the first failure (rows of other partitions may have been written), or RequestTimedOut.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for batch in self:
            if not batch.done:
                _wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self.peek()


class AsyncDelivery(Delivery):
    """The future of one record: await it for its RecordMetadata, or what it failed with. Ends its batch's linger."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._pending()
        if batch is not None:
            yield from _wait_async(batch).__await__()
        return self.peek()


class AsyncBatches(Batches):
    """The future of the rows of one `send_batch`: await it for their AppendedRanges."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[AppendedRange]]:
        for batch in self:
            if not batch.done:
                yield from _wait_async(batch).__await__()
        return self.peek()


_open: weakref.WeakSet[Producer] = weakref.WeakSet()


def _forked() -> None:
    """In a forked child, which has none of the parent's threads: nothing of the parent's producers works there."""
    for producer in list(_open):
        producer._is_direct = False  # noqa: SLF001
        producer._closed = True  # noqa: SLF001
        producer._lock = producer._sender.lock = threading.Lock()  # noqa: SLF001 - a thread that is no more may hold it


os.register_at_fork(after_in_child=_forked)


def _wait(batch: Batch, timeout_s: float | None) -> None:
    lock = allocate_lock()
    lock.acquire()
    if not batch.wait_with(lock.release):
        return
    batch.queue.owner.hurry()
    if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
        raise RequestTimedOut(f"The records for {batch.queue} are neither acknowledged nor failed after {timeout_s} s")


async def _wait_async(batch: Batch) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if batch.wait_with(lambda: _settle(done)):
        batch.queue.owner.hurry()
        await done


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Face(Generic[D]):
    """What both faces share: settings, serializers, and records into the core."""

    _delivery: type[D]

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        both = set(config or ()) & set(settings)
        if both:
            raise ConfigurationError(f"{', '.join(sorted(both))}: given twice, in the mapping and as a keyword")
        options, self._settings = read_settings({**(config or {}), **settings})
        self._key_serializer = serializer_for("key.serializer", options["key_serializer"])
        self._value_serializer = serializer_for("value.serializer", options["value_serializer"])
        self._partitioner: Partitioner | None = options["partitioner"]
        if self._partitioner is not None and not callable(self._partitioner):
            raise ConfigurationError("partitioner must be a callable of topic, key, value and partition count")
        self._sender = Sender(options, self._settings)
        self._direct_settings = {
            "is_allowed": options["security_protocol"] == "PLAINTEXT",
            "client_id": options["client_id"],
        }
        self._core = self._sender.core
        self._lock = self._sender.lock
        self._closed = False

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
            partition = self._partitioner(topic, key, value, count)
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

    def _prepare(
        self, topic: str, key: object, value: object, headers: object, timestamp_ms: int | None
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


def _unacknowledged() -> Closed:
    return Closed("The producer was closed before the record was acknowledged")


def _checked_timestamp(timestamp_ms: int | None) -> int:
    """The timestamp of a record, which is now if none is given."""
    if timestamp_ms is None:
        return time_ns() // 1_000_000
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise ValueError(f"A timestamp must be milliseconds since the epoch, not {timestamp_ms!r}")
    return timestamp_ms


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


class Producer(Front, _Face[BlockingDelivery]):
    """Sends records to topics; made of settings by Kafka's names or Python's.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("flights", b"value", key=b"JFK").result()

    May be shared by threads, not across a fork. Raises ConfigurationError; connects when the first record is sent.
    """

    _delivery = BlockingDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        super().__init__(config, **settings)
        self._driver = Driver("ottla-producer")
        self._core.hurry = self._hurry
        self._core.wait = self._wait
        self._direct = Direct(self._sender, self._driver, **self._direct_settings)
        self._accumulator = self._core.accumulator
        self._clock = time_ns
        _open.add(self)
        # Records go straight into their batch unless something of the user's has to see them, or a lock is needed.
        self._is_direct = COMPILED and not (self._key_serializer or self._value_serializer or self._partitioner)

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
        timestamp_ms: int | None,
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
        if not self._core.woken and not self._direct.watches():
            self._wake()
        return delivery

    def _append_in_time(self, topic: str, partition: int | None, *rest: Any) -> BlockingDelivery:
        return self._wait_for_room(topic, partition, lambda: self._append(topic, partition, *rest))

    def send_batch(self, topic: str, rows: pa.Table | pa.RecordBatch) -> BlockingBatches:
        """The future of all rows, which keep their order within each partition.

        Columns: `value` and `key` (binary or string), and if wanted `partition` (integers), `timestamp` (integers in ms
        or Arrow timestamps) and `headers` (lists of structs of name and value, or maps). Serializers and a partitioner
        of your own are not asked. Blocks and raises as `send`, and ValueError for other columns.
        """
        self._check_open()
        from ottla.clients.producer.columns import Window, encode_rows

        count = self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        pieces = encode_rows(rows, count, self._settings, time_ns() // 1_000_000, self._sender.available(topic, count))
        window = Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            self._wait_for_room(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.done and not self._driver.is_current_thread:
                _wait(awaited, self._settings.delivery_timeout_ms / 1000 + 1)
        return BlockingBatches(batches)

    def flush(self, timeout_s: float | None = None) -> int:
        """How many of the records sent so far are neither acknowledged nor failed: 0 unless time ran out. Blocks."""
        self._driver.check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            batches = self._core.begin_flush()
        self._wake()
        try:
            for batch in batches:
                if not batch.done:
                    self._wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        except RequestTimedOut:
            return sum(batch.count for batch in batches if not batch.done)
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
        try:
            self.flush(timeout_s)
        finally:  # after Ctrl-C too: other threads may wait for what is left
            try:
                self._driver.run(self._sender.close(_unacknowledged()))
            finally:
                self._direct.close()
                self._driver.close()

    def _wake(self) -> None:
        self._core.woken = True
        self._driver.call_soon(self._sender.turn)

    def _wait(self, batch: Batch, timeout_s: float | None) -> None:
        if self._closed:
            self._driver.check_fork()
        if not self._driver.is_current_thread and (timeout_s is None or timeout_s > PATIENCE_S):
            self._driver.check()
            self._direct.deliver(batch)
        if not batch.done:
            _wait(batch, timeout_s)

    def _hurry(self) -> None:
        if self._driver.is_current_thread:
            raise ClientError("A callback must not wait for a delivery: it would wait for itself")
        self._wake()

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
            if not self._core.woken:
                self._wake()
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


class AsyncProducer(_Face[AsyncDelivery]):
    """Sends records to topics from asyncio; made of settings by Kafka's names or Python's.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            await (await producer.send("flights", b"value", key=b"JFK"))

    Belongs to the loop on which its methods are first called. Raises ConfigurationError.
    """

    _delivery = AsyncDelivery

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        super().__init__(config, **settings)
        self._core.hurry = self._wake

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        callback: Callable[[AsyncDelivery], object] | None = None,
    ) -> AsyncDelivery:
        """The future of the record: await it for its acknowledgement. As `Producer.send`; waits instead of blocking."""
        key, value, checked, timestamp_ms = self._prepare(topic, key, value, headers, timestamp_ms)
        return await self._wait_for_room(
            topic, partition, lambda: self._append(topic, partition, key, value, checked, timestamp_ms, callback)
        )

    async def send_batch(self, topic: str, rows: pa.Table | pa.RecordBatch) -> AsyncBatches:
        """The future of all rows: await it for their AppendedRanges. As `Producer.send_batch`."""
        self._check_open()
        from ottla.clients.producer.columns import Window, encode_rows

        count = await self._wait_for_room(topic, None, lambda: self._core.partition_count(topic) or None)
        pieces = encode_rows(rows, count, self._settings, time_ns() // 1_000_000, self._sender.available(topic, count))
        window = Window(self._sender.window(topic, count))
        batches: list[Batch] = []
        for group in pieces:
            start = len(batches)
            await self._wait_for_room(topic, None, lambda todo=group: self._append_encoded(topic, todo, batches))  # type: ignore[misc]
            await asyncio.sleep(0)  # all else on the loop has its turn, and the group is sent
            awaited = window.add(batches[start:])
            if awaited is not None and not awaited.done:
                await _wait_async(awaited)
        return AsyncBatches(batches)

    async def flush(self, timeout_s: float | None = None) -> int:
        """How many of the records sent so far are neither acknowledged nor failed: 0 unless time ran out."""
        with self._lock:
            batches = self._core.begin_flush()
        self._wake()
        try:
            async with asyncio.timeout(timeout_s):
                for batch in batches:
                    if not batch.done:
                        await _wait_async(batch)
        except TimeoutError:
            return sum(batch.count for batch in batches if not batch.done)
        finally:
            with self._lock:
                self._core.end_flush()
        return 0

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flush for at most `timeout_s` seconds; what is left fails with Closed. A second time does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush(timeout_s)
        finally:
            await self._sender.close(_unacknowledged())

    def _wake(self) -> None:
        self._core.woken = True
        asyncio.get_running_loop().call_soon(self._sender.turn)

    async def _wait_for_room(self, topic: str, partition: int | None, attempt: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + self._settings.max_block_ms / 1000
        since = self._core.metadata_version
        while True:
            with self._lock:
                made = attempt()
                if made is None:
                    self._refuse_if_hopeless(topic, partition, since)
                    changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._core.wait_for_change(lambda changed=changed: _settle(changed))  # type: ignore[misc]
            if not self._core.woken:
                self._wake()
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
