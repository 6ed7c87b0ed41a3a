"""The consumer for threads. Its network runs in a thread of its own, so heartbeats do not depend on who polls.

One thread polls, all else may be called from any thread. Fetched bytes are decoded in the thread that polls.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.face import (
    ARROW_RECORDS,
    CLOSE_S,
    ON_TIME_S,
    ConsumerFace,
    Offsets,
    timestamps_by_partition,
)
from ottla.clients.consumer.membership import Duty
from ottla.clients.consumer.ready import Ready
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.requests import OffsetAndMetadata
from ottla.clients.consumer.sinks import ColumnSink, RecordSink, Sink
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.errors import ClientError, Closed
from ottla.clients.typed_settings import ConsumerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger("ottla.clients.consumer")
R = TypeVar("R")
GRACE_S = 1.0


class Consumer(ConsumerFace[K, V]):
    """Reads records from Ottla or any Kafka; blocks the calling thread.

    Settings as keyword arguments (`bootstrap_servers=`) or as a mapping with Kafka's names (`"bootstrap.servers"`);
    raises ConfigurationError. Nothing is connected before it is needed. Close it, or use it in a `with` block: if that
    ends by an exception, auto-commit leaves out what the last poll handed over.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        self._ready = Ready()
        super().__init__(settings, options, self._ready.set)
        self._driver = Driver("ottla-consumer")
        engine = self._engine
        self._dropped = when_dropped(self, engine.describe, self._driver, lambda: engine.close(CLOSE_S))
        self._driver.call_soon(self._engine.start, self._driver.loop)

    def _me(self) -> int:
        return threading.get_ident()

    # -- reading -------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """The next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        The records of a partition are together, by offset. Also takes part in rebalances and calls the listeners. With
        auto-commit it says that all records of earlier polls are processed. Raises CorruptRecords or
        DeserializationFailed once for what cannot be read, and what keeps the consumer from reading: errors of the
        group, of authorization, or of a position. Wakeup after `wakeup`; ConcurrentUse if another thread polls, or from
        within a listener.
        """
        self._begin()
        try:
            if self._left:
                records, self._left = list(self._left), type(self._left)()
                return records
            sink = RecordSink(self._options["max_poll_records"] if max_records is None else max_records)
            self._poll(timeout_s, sink)
            return self._deserialized(sink.records)
        except BaseException as error:
            self._take_back(error)
            raise
        finally:
            self._done()

    def poll_arrow(self, timeout_s: float = 1.0, *, max_records: int = ARROW_RECORDS) -> pa.RecordBatch:
        """The next records as one Arrow batch; no rows after `timeout_s` seconds. Otherwise as `poll`.

        Columns: key, value (binary), topic, partition, offset, timestamp (ms, UTC), headers (list of key and value).
        At most `max_records` rows and 64 MiB of records, or one that is larger. Deserializers are not applied.
        """
        from ottla.clients.consumer.arrow import to_arrow

        self._begin()
        try:
            if self._left:
                self._settle_left()
            sink = ColumnSink(max_records)
            self._poll(timeout_s, sink)
            return to_arrow(sink)
        except BaseException as error:
            self._take_back(error)
            raise
        finally:
            self._done()

    def _take_back(self, error: BaseException) -> None:
        """Ctrl-C or a signal's handler ended a poll: what it had taken is for the next, and `close` commits none of it.

        Errors of our own come when nothing is taken, or have seen to it.
        """
        if not isinstance(error, ClientError) and not self._engine.closed:
            self._engine.change(lambda core: core.take_back())

    def _settle_left(self) -> None:
        self._engine.change(lambda core: core.give_back(self._left))
        self._left.clear()

    def _poll(self, timeout_s: float, sink: Sink) -> None:
        deadline = time.monotonic() + timeout_s
        engine = self._engine
        engine.begin_poll()
        try:
            while True:
                self._ready.clear()
                self._look_around()
                duty = engine.step(sink)
                if duty is not None:
                    self._do(duty)
                elif len(sink):
                    return
                else:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or self._ending:
                        return
                    self._ready.wait(left_s)
        finally:
            engine.end_poll()

    def _do(self, duty: Duty, limit_s: float = ON_TIME_S) -> None:
        if duty.kind == "revoked" and self._engine.core.commits_by_itself:
            self._commit_processed(limit_s)
        listener = self._listeners.get(duty.kind)
        try:
            if listener is not None:
                listener(list(duty.partitions))
        finally:
            self._engine.duty_done(duty)

    def _commit_processed(self, limit_s: float) -> None:
        try:
            self._driver.run(self._engine.commit(None, limit_s))
        except ClientError as error:
            logger.warning("Positions are not committed before partitions are given up: %s", error)

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Records for ever, one at a time; blocks while there are none. Ends when the consumer is closed."""
        return self

    def __next__(self) -> Record[K, V]:
        while not self._left:
            if self._ending:
                raise StopIteration
            self._left.extend(self.poll(1.0))
        return self._left.popleft()

    def unsubscribe(self) -> None:
        """Give up what it reads, and leave the group. May commit, and calls `on_revoked`: blocks for that."""
        self._begin()
        try:
            self._settle()
            self._engine.change(lambda core: core.unsubscribe())
            while (duty := self._engine.step(None)) is not None:
                self._do(duty)
            self._listeners = {}
        finally:
            self._done()

    # -- positions -----------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit positions: these offsets of the next records to read, or (None) after all that was handed over.

        Blocks until the group has them, at most `timeout_s` (default.api.timeout.ms). Raises RebalanceInProgress
        (poll, then commit again), IllegalGeneration or UnknownMember (the partitions are another member's now).
        """
        self._driver.run(self._engine.commit(self._to_commit(offsets), timeout_s))

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[[ClientError | None], Any] | None = None
    ) -> None:
        """Commit without waiting; `callback` gets None or the error, in the network's thread: it must not block.

        Commits are done one after another, those of `commit` included, in the order of the calls; `close` waits for
        them.
        """
        self._driver.call_soon(self._engine.commit_later, self._to_commit(offsets), callback)

    def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None for a partition without. Blocks for the answer."""
        tps = [TopicPartition(*tp) for tp in partitions]
        return self._driver.run(self._engine.committed(tps, timeout_s))

    def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the next record that a poll hands over. Blocks until it is known. Raises NotAssigned."""
        tp = TopicPartition(*partition)
        for record in self._left:
            if record.topic_partition == tp:
                return record.offset
        return self._driver.run(self._engine.position(tp, timeout_s))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, its timestamp in ms) of the first record not older than each timestamp; None if there is none."""
        return self._driver.run(self._engine.list_offsets(timestamps_by_partition(timestamps_ms), timeout_s))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._ends(partitions, -2, timeout_s)

    def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with read_committed of the last that is decided."""
        return self._ends(partitions, -1, timeout_s)

    def _ends(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], which: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*tp): which for tp in partitions}
        rows = self._driver.run(self._engine.list_offsets(wanted, timeout_s))
        return {tp: row[0] for tp, row in rows.items() if row is not None}

    def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """The partitions of a topic, in order. Raises UnknownTopicOrPartition."""
        return self._driver.run(self._engine.partitions_of(topic, timeout_s))

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic with their leaders and replicas. Raises UnknownTopicOrPartition."""
        return self._driver.run(self._engine.partition_infos(topic, timeout_s))

    def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Every topic and its partitions, without the cluster's own."""
        return self._driver.run(self._engine.topics(timeout_s))

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Commit what was handed over (with auto-commit), call `on_revoked`, leave the group, end all connections.

        Blocks for `timeout_s` seconds at most, also if no broker answers. Another thread's poll returns what it has and
        its iteration ends. Does nothing the second time. Raises ConcurrentUse in a listener.
        """
        self._close(timeout_s, settle=True)

    def _close(self, timeout_s: float, *, settle: bool) -> None:
        if not self._begin_to_end():
            return
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        has_turn = self._turn.acquire(timeout=timeout_s / 2)
        if has_turn and self._engine.closed:  # another thread's close was quicker
            self._turn.release()
            return
        try:
            if has_turn:
                self._give_up(min(ON_TIME_S, max(0.0, deadline - time.monotonic()) / 2), settle=settle)
        finally:
            try:
                left_s = max(0.0, deadline - time.monotonic())
                self._driver.run(self._engine.close(left_s), left_s + GRACE_S)
            finally:
                self._driver.close()
                if has_turn:
                    self._turn.release()

    def _give_up(self, limit_s: float, *, settle: bool) -> None:
        if settle:
            self._settle()
        duty = self._last_duty()
        if duty is not None:
            self._do(duty, limit_s)
        elif self._engine.core.commits_by_itself:
            self._commit_processed(limit_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Closed):
            self._close(CLOSE_S, settle=error is None)
