"""The lag of groups, in records and in seconds, from the offsets of this node's group coordinator.

The end of a partition is its high watermark, of the replica on this node. If this node has no replica, its leader is
asked, and the answer is in the next scrape: a scrape never waits for another broker. The lag in seconds is the age of
the batch with the first unread record; it needs a replica on this node, and one read for each changed offset. A scrape
yields after each read, and has at most `MOST_READS` of them. The next scrape continues with the offsets that were left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.broker.metrics import families as f
from ottla.common.errors import KafkaError
from ottla.common.slices import Slices
from ottla.common.unread import Unread
from ottla.metrics.exposition import Samples, escaped, labelled
from ottla.records import read_header
from ottla.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.common.completion import Completion
    from ottla.coordinators.group.offset_store import GroupOffsets
    from ottla.coordinators.group.shard import GroupShard
    from ottla.log import Log

_Unread: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a first unread record."""
MOST_OFFSETS: Final = 20_000
"""Groups times partitions in one scrape; the others are only counted."""
MOST_READS: Final = 1_000
"""Batches that one scrape reads; the other changed offsets have no lag in seconds until a later scrape."""
_AT_ONCE: Final = 20


@dataclass(slots=True)
class _Reads:
    """The reads of one scrape: of all changed offsets, `MOST_READS` from the one with the number `first` on."""

    first: int
    wanted: int = 0

    def take(self) -> bool:
        """Return whether the next changed offset is read in this scrape."""
        number = self.wanted
        self.wanted += 1
        return self.first <= number < self.first + MOST_READS

    @property
    def next_first(self) -> int:
        """Where the next scrape begins: after these reads, or again at the start after the last one."""
        end = self.first + MOST_READS
        return end if self.wanted > end else 0


class GroupLag:
    """The state between two scrapes: times of first unread batches, and ends of partitions on other brokers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unread_ms: dict[_Unread, int] = {}
        """When the batch with an offset was written, by topic, partition and offset."""
        self._remote_ends: dict[tuple[str, int], int] = {}
        self._asked: set[tuple[str, int]] = set()
        self._first_read = 0

    def add_lags(self, samples: Samples) -> Slices[None]:
        """Add the offsets and the lag of each group of this node."""
        groups = self._broker.coordinators.created.groups
        known, self._unread_ms = self._unread_ms, {}
        rows, reads = _Rows(samples), _Reads(self._first_read)
        left, dropped = MOST_OFFSETS, 0
        for shard in [] if groups is None else groups.shards.shards():
            for group_id in list(shard.offsets.groups()):
                offsets = shard.offsets.of_group(group_id)
                count = sum(map(len, offsets.values()))
                if count > left:
                    dropped += count
                    continue
                left -= count
                yield from self._add_group(rows, group_id, offsets, (known, reads))
                samples.add(f.GROUP_MEMBERS, _members(shard, group_id), labelled(consumergroup=group_id))
        self._first_read = reads.next_first
        samples.add(f.GROUP_OFFSETS_DROPPED, dropped)

    def _add_group(
        self, rows: _Rows, group_id: str, offsets: GroupOffsets, cached: tuple[dict[_Unread, int], _Reads]
    ) -> Slices[None]:
        now_ms = self._broker.clock.wall_ms()
        group = escaped(group_id)
        number = 0
        for topic in list(offsets):
            label = f'consumergroup="{group}",topic="{escaped(topic)}"'
            total = 0
            for index, committed in list(offsets.get(topic, {}).items()):
                number += 1
                if number % _AT_ONCE == 0:
                    yield
                labels = f'{{{label},partition="{index}"}}'
                rows.offsets.append(f"{f.GROUP_OFFSET.name}{labels} {committed.offset}")
                log = self._broker.partitions.local_log(topic, index)
                end = self._remote_end(topic, index) if log is None else log.high_watermark
                if end is None:
                    continue
                # Records that retention deleted cannot be read any more.
                lag = max(end - max(committed.offset, 0 if log is None else log.log_start_offset), 0)
                total += lag
                rows.lags.append(f"{f.GROUP_LAG.name}{labels} {lag}")
                written_ms = now_ms
                if lag and log is not None:
                    found = yield from self._written_ms(log, topic, index, committed.offset, *cached)
                    if found is None:
                        continue
                    written_ms = found
                elif lag:
                    continue
                rows.seconds.append(f"{f.GROUP_LAG_SECONDS.name}{labels} {max(now_ms - written_ms, 0) / 1000}")
            rows.sums.append(f"{f.GROUP_LAG_SUM.name}{{{label}}} {total}")
        yield

    def _written_ms(
        self, log: Log, topic: str, index: int, offset: int, known: dict[_Unread, int], reads: _Reads
    ) -> Slices[int | None]:
        """When the batch with the first unread record was written; None if it cannot be read, or not in this scrape."""
        offset = max(offset, log.log_start_offset)
        key = (topic, index, offset)
        written_ms = self._unread_ms.get(key, known.get(key))
        if written_ms is None:
            if not reads.take():
                return None
            written_ms = _read_written_ms(log, offset)
            yield  # a read may wait for the disk
            if written_ms is None:
                return None
        self._unread_ms[key] = written_ms
        return written_ms

    def _remote_end(self, topic: str, index: int) -> int | None:
        """Return the end that the leader reported last, and ask it again."""
        key = (topic, index)
        image = self._broker.metadata.image.topics_by_name.get(topic)
        partition = None if image is None else image.partitions.get(index)
        if partition is None:
            self._remote_ends.pop(key, None)
            return None
        if key not in self._asked and partition.leader >= 0:
            self._asked.add(key)

            def answered(done: Completion[int | KafkaError]) -> None:
                self._asked.discard(key)
                end = done.result() if done.error is None else None
                if isinstance(end, int):
                    self._remote_ends[key] = end
                else:
                    self._remote_ends.pop(key, None)

            self._broker.peers.end_offsets.ask(partition.leader, key).on_done(answered)
        return self._remote_ends.get(key)


class _Rows:
    """The lines of the metrics of each group."""

    def __init__(self, samples: Samples) -> None:
        self.offsets, self.lags = samples.of(f.GROUP_OFFSET), samples.of(f.GROUP_LAG)
        self.seconds, self.sums = samples.of(f.GROUP_LAG_SECONDS), samples.of(f.GROUP_LAG_SUM)


def _read_written_ms(log: Log, offset: int) -> int | None:
    try:
        found = log.look_up(offset, 1, log.high_watermark)
        header = read_header(found.take(HEADER_SIZE) if isinstance(found, Unread) else found)
    except KafkaError:  # also of a directory that failed meanwhile, which has metrics of its own
        return None
    return header.max_timestamp if header.is_log_append_time else header.base_timestamp


def _members(shard: GroupShard, group_id: str) -> int:
    group = shard.groups.get(group_id)
    if group is not None:
        return len(group.members)
    modern = shard.consumer_groups.get(group_id) or shard.streams_groups.get(group_id)
    return 0 if modern is None else len(modern.state.members)
