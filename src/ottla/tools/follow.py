"""The loop of consume and tail: reads with a Consumer until a limit or an interrupt, and passes records to a sink.

Without a group it assigns the partitions itself and never commits. With a group it commits only the records that the
sink has taken: regularly, before partitions are revoked, and at the end.
"""

from __future__ import annotations

import heapq
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from types import FrameType
from typing import NamedTuple

from ottla import clients
from ottla.clients.errors import CorruptRecords, NotAssigned
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.common.style import Style
from ottla.tools.progress import Progress

POLL_S = 0.25
"""The timeout of a poll, and so the longest time until an interrupt takes effect."""
RECORDS = 10_000
COMMIT_EVERY_S = 5.0
DISCOVER_EVERY_S = 30.0
Discover = Callable[[], Sequence[TopicPartition]]
Sink = Callable[[Sequence["clients.Record"]], None]


class Stopping:
    """Whether an interrupt has asked to stop, and whether the output of the records has lost its reader."""

    def __init__(self, reader_has_ended: Callable[[], bool] = lambda: False) -> None:
        self.asked = False
        self.reader_has_ended = reader_has_ended

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one asks to stop, the second one raises KeyboardInterrupt."""
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True


@contextmanager
def stopping_on_interrupt() -> Iterator[Stopping]:
    """Let Ctrl-C and SIGTERM stop the loop between polls, so that records are written and committed."""
    stopping = Stopping(_output_has_ended)
    before = {number: signal.signal(number, stopping.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Limits(NamedTuple):
    """The end of reading: after `most` records, at the offsets `ends`, or at a timestamp; `grep` filters records."""

    most: int | None = None
    ends: Mapping[TopicPartition, int] | None = None
    until_ms: int | None = None
    grep: re.Pattern[bytes] | None = None

    def matching(self, records: list[clients.Record]) -> list[clients.Record]:
        """Return the records whose value or key matches `grep`."""
        if self.grep is None:
            return records
        found = self.grep.search
        return [r for r in records if (r.value and found(r.value)) or (r.key and found(r.key))]


class Reached:
    """The offsets that were read so far, and their count."""

    def __init__(self, starts: Mapping[TopicPartition, int] | None = None) -> None:
        self.count = 0
        self._offsets = dict(starts or {})

    def note(self, tp: TopicPartition, offset: int) -> None:
        """Note that a partition was read up to `offset`."""
        self.count += offset - self._offsets.get(tp, offset)
        self._offsets[tp] = offset


class Follower:
    """One run from start to end. `written` counts the records that the sink received."""

    def __init__(
        self,
        consumer: clients.Consumer,
        sink: Sink,
        limits: Limits,
        stopping: Stopping,
        bar: Progress | None = None,
        discover: Discover | None = None,
    ) -> None:
        """`discover` returns the existing partitions: new ones are read from their beginning.

        The sink advances `bar`; the follower redraws it while no records arrive.
        """
        self._consumer = consumer
        self._bar = Progress("records", shown=False) if bar is None else bar
        self._reached = Reached()
        self._discover = discover
        self._discover_at_s = time.monotonic() + DISCOVER_EVERY_S
        self._sink = sink
        self._limits = limits
        self._stopping = stopping
        self._left: dict[TopicPartition, int] = dict(limits.ends or {})
        self._next: dict[TopicPartition, int] = {}
        self._commit_at_s = time.monotonic() + COMMIT_EVERY_S
        self.written = 0
        self.corrupt = 0
        self._in_group = False
        self._was_assigned = False

    def run(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read partitions from the offsets `starts`. Blocks until a limit or an interrupt."""
        self._left = {tp: end for tp, end in self._left.items() if end > starts[tp]}
        wanted = starts if self._limits.ends is None else self._left
        if not wanted or self._limits.most == 0 or self._stopping.asked:
            return
        self._consumer.assign(wanted)
        self._consumer.resume(wanted)
        for tp in wanted:
            self._consumer.seek(tp, starts[tp])
        self._expect(starts)
        self._read()

    def _expect(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the total of the progress: a number of records, or the number of offsets up to the ends.

        Compaction and transaction markers use offsets, so there may be fewer records than offsets.
        """
        most = self._limits.most
        offsets = sum(end - starts[tp] for tp, end in self._left.items())
        if most is not None and self._limits.grep is None and not 0 < offsets < most:
            self._bar.expect(most)
        elif offsets:
            self._reached = Reached(starts)
            self._bar.expect(offsets, lambda: self._reached.count)

    def run_in_group(self, topics: Sequence[str] | None, pattern: str | None) -> None:
        """Read as a member of the group, from its committed offsets. Blocks until a limit or an interrupt."""
        self._in_group = True
        self._consumer.subscribe(
            topics, pattern=pattern, on_assigned=self._assigned, on_revoked=self._revoke, on_lost=self._lose
        )
        self._read()
        if self._next:
            self._consumer.commit(self._next)
            self._next.clear()

    def _read(self) -> None:
        until_ms = self._limits.until_ms
        while not self._stopping.asked:
            wanted_count = None if self._limits.most is None else self._limits.most - self.written
            try:
                most = RECORDS if wanted_count is None or self._limits.grep is not None else min(RECORDS, wanted_count)
                records = self._consumer.poll(POLL_S, max_records=most)
            except CorruptRecords as error:
                self.corrupt += 1
                self._bar.say(Style.of(sys.stderr).red(f"ottla: {error}"))
                continue
            wanted = self._take(records, wanted_count) if records else 0
            if self._is_done(idle=not records):
                return
            if until_ms is not None and not wanted and units.now_ms() >= until_ms:
                return
            if not records and self._stopping.reader_has_ended():
                raise BrokenPipeError
            self._do_periodic_work()

    def _is_done(self, *, idle: bool) -> bool:
        if self._limits.most is not None and self.written >= self._limits.most:
            return True
        if self._limits.ends is None:
            return False
        if self._in_group:
            return self._has_reached(self._limits.ends)
        if idle:
            self._finish_reached()
        return not self._left

    def _take(self, records: list[clients.Record], count: int | None) -> int:
        """Pass the wanted records of a poll to the sink; returns their number. Updates the offsets to commit."""
        wanted = self._within_ends(records) if self._limits.ends is not None and not self._in_group else records
        if self._limits.until_ms is not None:
            wanted = [record for record in wanted if record.timestamp < self._limits.until_ms]
        wanted = self._limits.matching(wanted)
        if count is not None:
            wanted = wanted[:count]
        if wanted:
            self._sink(wanted)
            self.written += len(wanted)
        if self._in_group:
            full = self._limits.most is not None and self.written >= self._limits.most
            for _, run in groupby(_up_to(records, wanted[-1]) if full else records, type):
                *_, last = run
                self._next[last.topic_partition] = last.offset + 1
        return len(wanted)

    def _within_ends(self, records: list[clients.Record]) -> list[clients.Record]:
        inside: list[clients.Record] = []
        for _, run in groupby(records, type):
            batch = list(run)
            tp = batch[0].topic_partition
            end = self._left.get(tp)
            if end is None:
                continue
            self._reached.note(tp, min(batch[-1].offset + 1, end))
            if batch[-1].offset + 1 >= end:
                batch = [record for record in batch if record.offset < end]
                self._finish(tp)
            inside += batch
        return inside

    def _finish(self, tp: TopicPartition) -> None:
        del self._left[tp]
        if self._left:
            self._consumer.pause([tp])

    def _finish_reached(self) -> None:
        """Finish partitions that end in transaction markers or in records that compaction removed."""
        for tp, end in list(self._left.items()):
            if self._consumer.position(tp) >= end:
                self._finish(tp)

    def _has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether all partitions that are assigned to this member are read up to their ends."""
        if not self._was_assigned:
            return False
        try:
            return all(self._consumer.position(tp) >= ends.get(tp, 0) for tp in self._consumer.assignment())
        except NotAssigned:  # A partition was just revoked; the next call sees the new assignment.
            return False

    def _do_periodic_work(self) -> None:
        self._bar.advance(0)
        now_s = time.monotonic()
        if self._in_group and self._next and now_s >= self._commit_at_s:
            self._commit_at_s = now_s + COMMIT_EVERY_S
            self._consumer.commit_async(dict(self._next))
        if self._discover is not None and self._limits.ends is None and now_s >= self._discover_at_s:
            self._discover_at_s = now_s + DISCOVER_EVERY_S
            known = self._consumer.assignment()
            new = [tp for tp in self._discover() if tp not in known]
            if new:
                self._consumer.assign([*known, *new])
                self._consumer.seek_to_beginning(new)

    def _assigned(self, _: list[TopicPartition]) -> None:
        self._was_assigned = True

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        mine = {tp: self._next[tp] for tp in partitions if tp in self._next}
        if mine:
            self._consumer.commit(mine)
        self._lose(partitions)

    def _lose(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._next.pop(tp, None)


def _up_to(records: Sequence[clients.Record], last: clients.Record) -> list[clients.Record]:
    """Return the records up to `last`, which the sink received last."""
    for index in range(len(records) - 1, -1, -1):
        if records[index] is last:
            return list(records[: index + 1])
    return list(records)


def newest(records: Sequence[clients.Record], count: int) -> list[clients.Record]:
    """Return the last `count` records of all partitions together, ordered by timestamp.

    Merges the partitions backwards with a heap, in O(count log partitions). Records of one partition keep their order,
    whatever their timestamps.
    """
    ends: dict[TopicPartition, list[clients.Record]] = {}
    for record in records:
        ends.setdefault(record.topic_partition, []).append(record)
    chosen: dict[TopicPartition, int] = {}
    heap = [(-rows[-1].timestamp, tp) for tp, rows in ends.items()]
    heapq.heapify(heap)
    for _ in range(min(count, len(records))):
        _, tp = heap[0]
        taken = chosen[tp] = chosen.get(tp, 0) + 1
        if taken < len(ends[tp]):
            heapq.heapreplace(heap, (-ends[tp][-taken - 1].timestamp, tp))
        else:
            heapq.heappop(heap)
    runs = [ends[tp][-taken:] for tp, taken in chosen.items()]
    return list(heapq.merge(*runs, key=lambda record: record.timestamp))


def _output_has_ended() -> bool:
    """Whether standard output is a pipe whose reader has ended; detects it without a write."""
    poller = select.poll()
    try:
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & select.POLLERR for _, event in poller.poll(0))
