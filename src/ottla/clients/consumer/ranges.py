"""Reads ranges of offsets as columns, for callers that plan their own ranges, as Spark does.

A reader fetches nothing twice, and nothing beyond the fetch that reaches the end of a range. So it can stay open
between ranges at no cost to the broker, and the next range needs no new connection. `read` blocks the calling thread;
the network runs in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final, Self

from ottla.clients.consumer.collectors import ColumnCollector
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effect_runner import EffectRunner
from ottla.clients.consumer.queries import Queries
from ottla.clients.consumer.range_core import RangeCore
from ottla.clients.consumer.settings import EARLIEST, LATEST, read_settings
from ottla.clients.driver import Driver
from ottla.clients.errors import ClientError, Closed, OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.telemetry import Role, Telemetry
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition

LOST_AFTER_S = 10.0
"""How long a topic must be unknown, or the log must end before the range, until the records count as lost."""
CHECK_INTERVAL_S: Final = 1.0
CLOSE_S: Final = 2.0


class RecordsLost(ClientError):
    """Records of a range are not in the log any more: `offset` is the first of them, `until` the first that exists.

    `until` is the end of the range if none of its records exist.
    """

    def __init__(self, message: str, *, topic: str, partition: int, offset: int, until: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.until = until


class RangeCollector(ColumnCollector):
    """Collects at most `max_bytes` of records up to the end of a range.

    The last batch may contain a few records beyond the end if the range has gaps.
    """

    __slots__ = ("_end", "position")

    def __init__(self, position: int, end: int, max_bytes: int) -> None:
        super().__init__(end - position, max_bytes)
        self._end = end
        self.position = position

    @property
    def is_full(self) -> bool:
        return self.position >= self._end or super().is_full

    def take(self, fetched: Fetched) -> None:
        super().take(fetched)
        self.position = max(self.position, fetched.next_offset)


class RangeReader:
    """Reads ranges one after another, with a consumer's settings except group.id and auto.offset.reset.

    One thread at a time may use it, and a forked child may not.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        options, typed = read_settings({**settings, "group.id": None, "auto.offset.reset": "none"})
        self._timeout_s = typed.api_timeout_ms / 1000
        self._ready = threading.Event()
        self._cluster = Cluster(read_network_settings(options))
        if options["enable_metrics_push"]:
            self._cluster.telemetry = Telemetry(self._cluster, Role("consumer", dict))
        self._core = RangeCore(typed.fetch, self._cluster.view)
        self._runner = EffectRunner(self._cluster, self._core, typed, self._ready.set)
        self._queries = Queries(self._runner, self._core.fetch, self._timeout_s)
        self._driver = Driver("ottla-ranges")
        self._driver.call_soon(self._runner.start, self._driver.loop)

    def read(self, topic: str, partition: int, start: int, end: int, max_bytes: int) -> Iterator[RangeCollector]:
        """Yield the records from `start` to before `end`, in collectors that are not empty.

        Blocks while there are no records, at most default.api.timeout.ms. Raises RecordsLost, after which the range can
        be read from its `until` on; CorruptRecords; RequestTimedOut; and errors that are not retriable.
        """
        tp = TopicPartition(topic, partition)
        self._runner.change(lambda core: core.begin(tp, start, end))
        position = start
        while position < end:
            collector = RangeCollector(position, end, max_bytes)
            self._fill(tp, collector, end)
            position = collector.position
            if len(collector):
                yield collector

    def _fill(self, tp: TopicPartition, collector: RangeCollector, end: int) -> None:
        """Wait until the collector has records or the range ends."""
        progress_s, position = time.monotonic(), collector.position
        problem: ClientError | None = None
        while True:
            self._ready.clear()
            try:
                self._runner.change(lambda core: core.fill(collector))
            except OffsetOutOfRange as error:
                raise self._records_lost(tp, position, end) from error
            except ClientError as error:
                if not error.retriable:
                    raise
                problem = error
            if len(collector) or collector.position >= end:
                return
            now_s = time.monotonic()
            if collector.position > position:  # skipped batches without records for the user
                progress_s, position, problem = now_s, collector.position, None
            idle_s = now_s - progress_s
            if idle_s >= LOST_AFTER_S:
                self._check_deleted(tp, position, end)
            if idle_s >= self._timeout_s:
                raise self._timed_out(tp, position, problem)
            self._ready.wait(min(CHECK_INTERVAL_S, self._timeout_s - idle_s))

    def _timed_out(self, tp: TopicPartition, position: int, problem: ClientError | None) -> RequestTimedOut:
        reason = str(problem or "") or self._cluster.problems
        if not reason and self._cluster.view.leader(*tp) is None:
            reason = "the leader of the partition is not known"
        suffix = f" ({reason})" if reason else ""
        return RequestTimedOut(f"{tp} at offset {position}: no records within {self._timeout_s:g} s{suffix}")

    def _records_lost(self, tp: TopicPartition, position: int, end: int) -> RecordsLost:
        earliest = self._log_offset(tp, EARLIEST)
        latest = self._log_offset(tp, LATEST)
        until = earliest if position < earliest < end else end
        return RecordsLost(
            f"{tp}: offsets {position} to {until - 1} are not in the log, which has {earliest} to {latest - 1}",
            topic=tp.topic, partition=tp.partition, offset=position, until=until,
        )  # fmt: skip

    def _log_offset(self, tp: TopicPartition, timestamp: int) -> int:
        row = self._driver.run(self._queries.list_offsets({tp: timestamp}, self._timeout_s))[tp]
        return -1 if row is None else row[0]

    def _check_deleted(self, tp: TopicPartition, position: int, end: int) -> None:
        """Raise RecordsLost if the topic or partition does not exist, or its log ends before the range."""
        view = self._cluster.view
        partitions = view.partitions(tp.topic)
        is_unknown = view.topic_errors.get(tp.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_unknown or (partitions is not None and tp.partition not in partitions):
            raise RecordsLost(
                f"{tp}: the {'topic' if is_unknown else 'partition'} does not exist (any more), so offsets {position} "
                f"to {end - 1} are lost", topic=tp.topic, partition=tp.partition, offset=position, until=end,
            ) from UnknownTopicOrPartition()  # fmt: skip
        log_end = self._runner.change(lambda core: core.fetch.positions.of(tp).bounds.high_watermark)
        if 0 <= log_end <= position:
            raise RecordsLost(
                f"{tp}: the log ends at offset {log_end}, before the range does ({end}): records were lost",
                topic=tp.topic, partition=tp.partition, offset=position, until=end,
            )  # fmt: skip

    @property
    def usable(self) -> bool:
        """Whether this process may use it: it is not closed, and the process is not a forked child."""
        try:
            self._driver.check()
        except ClientError:
            return False
        return not self._runner.closed

    def close(self) -> None:
        """Close the connections. Does nothing if it was closed, or in a forked child."""
        if not self.usable:
            return
        try:
            self._driver.run(self._runner.close(lambda _core: [], CLOSE_S), CLOSE_S + 1)
        except Closed:
            return
        finally:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
