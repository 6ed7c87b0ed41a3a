"""The consumer for threads. Its network runs in a thread of its own, so heartbeats do not depend on polls.

One thread polls; all other methods may be called from any thread. Fetched bytes are decoded in the thread that polls.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ottla.clients import late
from ottla.clients.cluster import PartitionInfo
from ottla.clients.consumer.collectors import Collector, RecordCollector
from ottla.clients.consumer.interface import (
    ARROW_RECORDS,
    CLOSE_S,
    REVOKE_COMMIT_S,
    ConsumerInterface,
    Offsets,
    timestamps_by_partition,
)
from ottla.clients.consumer.member_states import Duty
from ottla.clients.consumer.record import K, Record, V
from ottla.clients.consumer.settings import EARLIEST, LATEST
from ottla.clients.consumer.signal_safe_event import SignalSafeEvent
from ottla.clients.driver import Driver
from ottla.clients.dropped import when_dropped
from ottla.clients.errors import ClientError, Closed
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.typed_settings import ConsumerConfig
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

logger = logging.getLogger("ottla.clients.consumer")
GRACE_S: Final = 1.0
"""How much longer than its own deadline the closing of the client may take."""


class Consumer(ConsumerInterface[K, V]):
    """Reads records from Ottla or any Kafka; blocks the calling thread.

    Takes settings as keyword arguments (`bootstrap_servers=`) or as a mapping with Kafka's names
    (`"bootstrap.servers"`), and raises ConfigurationError. Connections are made when they are needed. Close it, or use
    it in a `with` block. If the block ends with an exception, auto-commit does not commit the records of the last poll.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerConfig]) -> None:
        self._ready = SignalSafeEvent()
        super().__init__(settings, options, self._ready.set)
        self._driver = Driver("ottla-consumer")
        client = self._client
        self._dropped = when_dropped(self, client.describe, self._driver, lambda: client.close(CLOSE_S))
        self._driver.call_soon(client.start, self._driver.loop)

    def _caller(self) -> int:
        return threading.get_ident()

    # -- reading -------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> list[Record[K, V]]:
        """Return the next records, at most `max_records` (max.poll.records); an empty list after `timeout_s` seconds.

        The records of a partition are adjacent and in the order of their offsets. A poll also takes part in rebalances
        and calls the listeners. With auto-commit, a poll means that all records of earlier polls are processed.

        Raises CorruptRecords or DeserializationFailed, once, for records that cannot be read. Raises the errors that
        prevent the consumer from reading: of the group, of authorization, or of a position. Raises Wakeup after
        `wakeup`, and ConcurrentUse if another thread polls or a listener calls it.
        """
        self._begin()
        try:
            if self._pending:
                return self._take_pending()
            collector = RecordCollector(self._settings.max_poll_records if max_records is None else max_records)
            self._poll(timeout_s, collector)
            return self._deserialized(collector.records)
        except BaseException as error:  # also KeyboardInterrupt
            self._revert_poll(error)
            raise
        finally:
            self._done()

    def poll_arrow(self, timeout_s: float = 1.0, *, max_records: int = ARROW_RECORDS) -> pa.RecordBatch:
        """Return the next records as one Arrow batch; no rows after `timeout_s` seconds. Otherwise as `poll`.

        Columns: key, value (binary), topic, partition, offset, timestamp (ms, UTC), headers (list of key and value).
        At most `max_records` rows and 64 MiB of records, or one record that is larger. Deserializers are not applied.
        """
        collector = late.arrow.arrow_collector(max_records)
        self._begin()
        try:
            self._give_back_pending()
            self._poll(timeout_s, collector)
            return late.arrow.to_arrow(collector)
        except BaseException as error:  # also KeyboardInterrupt
            self._revert_poll(error)
            raise
        finally:
            self._done()

    def _revert_poll(self, error: BaseException) -> None:
        """Return the records of an interrupted poll by the next poll, so that `close` does not commit them.

        Ctrl-C or a signal handler may interrupt a poll anywhere. ClientErrors are raised when no record was taken, or
        after the positions were set.
        """
        if not isinstance(error, ClientError) and not self._client.closed:
            self._client.change(lambda core: core.fetch.delivery.revert_poll())

    def _poll(self, timeout_s: float, collector: Collector) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        client.begin_poll()
        try:
            while True:
                self._ready.clear()
                self._raise_wakeup()
                duty = client.step(collector)
                if duty is not None:
                    self._do(duty)
                elif len(collector):
                    return
                else:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0 or self._closing:
                        return
                    self._ready.wait(left_s)
        finally:
            client.end_poll()

    def _do(self, duty: Duty, commit_timeout_s: float = REVOKE_COMMIT_S) -> None:
        if duty.kind == "revoked" and self._client.core.auto_commits:
            self._commit_processed(commit_timeout_s)
        listener = self._listeners.get(duty.kind)
        try:
            if listener is not None:
                listener(list(duty.partitions))
        finally:
            self._client.duty_done(duty)

    def _commit_processed(self, timeout_s: float) -> None:
        try:
            self._driver.run(self._client.commit(None, timeout_s))
        except ClientError as error:
            logger.warning("Commit of positions before partitions are revoked failed: %s", error)

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Yield records one at a time; blocks while there are none. Ends when the consumer is closed."""
        return self

    def __next__(self) -> Record[K, V]:
        while not self._pending:
            if self._closing:
                raise StopIteration
            self._pending.extend(self.poll(1.0))
        return self._pending.popleft()

    def unsubscribe(self) -> None:
        """Stop reading and leave the group. May commit and calls `on_revoked`, and blocks for that."""
        self._begin()
        try:
            self._settle()
            self._client.change(lambda core: core.unsubscribe())
            while (duty := self._client.step(None)) is not None:
                self._do(duty)
            self._listeners = {}
        finally:
            self._done()

    # -- positions -----------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit these offsets of the next records to read, or (None) those after all records that polls returned.

        Blocks until they are committed, at most `timeout_s` (default.api.timeout.ms). Raises RebalanceInProgress
        (poll, then commit again), IllegalGeneration or UnknownMember (the partitions belong to another member now).
        """
        self._driver.run(self._client.commit(self._commit_plan(offsets), timeout_s))

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[[ClientError | None], Any] | None = None
    ) -> None:
        """Commit without waiting. `callback` gets None or the error, in the network's thread, and must not block.

        Commits, also those by `commit`, are sent one at a time in the order of the calls. `close` waits for them.
        """
        self._driver.call_soon(self._client.commit_later, self._commit_plan(offsets), callback)

    def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without. Blocks."""
        tps = [TopicPartition(*tp) for tp in partitions]
        return self._driver.run(self._client.committed(tps, timeout_s))

    def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record that a poll returns. Blocks until it is known. Raises NotAssigned."""
        tp = TopicPartition(*partition)
        for record in self._pending:
            if record.topic_partition == tp:
                return record.offset
        return self._driver.run(self._client.position(tp, timeout_s))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout_s: float | None = None
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp in ms) of the first record not older than each timestamp; None without such."""
        return self._driver.run(self._client.queries.list_offsets(timestamps_by_partition(timestamps_ms), timeout_s))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._log_offsets(partitions, EARLIEST, timeout_s)

    def end_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition; with read_committed, the last stable offset."""
        return self._log_offsets(partitions, LATEST, timeout_s)

    def _log_offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = {TopicPartition(*tp): timestamp for tp in partitions}
        rows = self._driver.run(self._client.queries.list_offsets(wanted, timeout_s))
        return {tp: row[0] for tp, row in rows.items() if row is not None}

    def partitions_of(self, topic: str, timeout_s: float | None = None) -> list[int]:
        """Return the partitions of a topic, in order. Raises UnknownTopicOrPartition."""
        return self._driver.run(self._client.queries.partitions_of(topic, timeout_s))

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionInfo]:
        """Return the partitions of a topic with leaders and replicas. Raises UnknownTopicOrPartition."""
        return self._driver.run(self._client.queries.partition_infos(topic, timeout_s))

    def topics(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Return every topic and its partitions, without internal topics."""
        return self._driver.run(self._client.queries.topics(timeout_s))

    # -- closing -------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Commit the positions (with auto-commit), call `on_revoked`, leave the group, close the connections.

        Blocks for at most `timeout_s` seconds, also if no broker responds. A poll of another thread returns its
        records, and an iteration ends. A second call does nothing. Raises ConcurrentUse in a listener.
        """
        self._close(timeout_s, settle=True)

    def _close(self, timeout_s: float, *, settle: bool) -> None:
        if not self._begin_close():
            return
        self._dropped.detach()
        deadline = time.monotonic() + timeout_s
        has_turn = self._turn.acquire(timeout=timeout_s / 2)
        if has_turn and self._client.closed:  # another thread has closed it
            self._turn.release()
            return
        try:
            if has_turn:
                self._release(min(REVOKE_COMMIT_S, max(0.0, deadline - time.monotonic()) / 2), settle=settle)
        finally:
            try:
                left_s = max(0.0, deadline - time.monotonic())
                self._driver.run(self._client.close(left_s), left_s + GRACE_S)
            finally:
                self._driver.close()
                if has_turn:
                    self._turn.release()

    def _release(self, commit_timeout_s: float, *, settle: bool) -> None:
        """Commit, and revoke the partitions."""
        if settle:
            self._settle()
        duty = self._last_duty()
        if duty is not None:
            self._do(duty, commit_timeout_s)
        elif self._client.core.auto_commits:
            self._commit_processed(commit_timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Closed):
            self._close(CLOSE_S, settle=error is None)
