"""Positions in topics, as pure functions: what a micro-batch may take, how it is split into tasks, what was lost.

A position is the next offset to read. Spark keeps the positions of a query as JSON, `{"topic": {"0": 123}}`, just like
its own Kafka source, so that a checkpoint of the one can be read by the other. In this order the source uses it:

    positions(json) -> reconcile(start, latest, ...) -> admit(start, latest, ...) -> json_of(end)
    plan(start, end, ...) -> split(ranges, ...) or pack(ranges)

A position that goes back (`end` before `start`) is a reset: the partition was made anew or cut, the batch that goes
back reads nothing of it and the next one goes on from there. Nothing here does I/O or knows Spark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.common.ids import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
OFFSET_MAX: Final = 2**63 - 1

Positions: TypeAlias = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The offsets of one partition that one task reads: `start` up to, without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; compaction and transactions may leave fewer records."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class PositionsError(ValueError):
    """A text or a checkpoint that holds no positions."""


# -- JSON --------------------------------------------------------------------------------------------------------


def positions(offset: object) -> Positions:
    """The positions of Spark's Kafka JSON, parsed; raises PositionsError for anything else."""
    found: Positions = {}
    if not isinstance(offset, Mapping):
        raise PositionsError(_expected(offset))
    for topic, by_partition in offset.items():
        if not isinstance(topic, str) or not isinstance(by_partition, Mapping):
            raise PositionsError(_expected(offset))
        for partition, position in by_partition.items():
            is_number = isinstance(position, int) and not isinstance(position, bool)
            if not (isinstance(partition, str) and partition.isascii() and partition.isdigit() and is_number):
                raise PositionsError(_expected(offset))
            found[TopicPartition(topic, int(partition))] = position
    return found


def _expected(given: object) -> str:
    return f'expected e.g. {{"topicA": {{"0": 23, "1": -1}}, "topicB": {{"0": -2}}}}, got {given!r}'


def json_of(at: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The same as JSON. Equal positions give equal text: Spark compares the text to see whether there is news."""
    json: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(at):
        json.setdefault(topic, {})[str(partition)] = at[TopicPartition(topic, partition)]
    return json


# -- what was lost -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Where the partitions end for this query, and each loss that was noticed, as a sentence."""

    latest: Positions
    losses: tuple[str, ...]


def shrunk(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """The partitions that end before the query's position: worth asking again, a new leader may lag."""
    return [tp for tp, at in start.items() if latest.get(tp, at) < at]


def reconcile(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    recreated: Mapping[TopicPartition, int],
) -> Reconciled:
    """What the cluster has, seen from a query at `start`.

    `recreated` are partitions of topics that have another id than before, with their first offset: the query goes back
    to it. A partition that ends before `start` was cut: the query goes back to that end. One that is not in `latest`
    is gone and left out; should it come back, it is new.
    """
    ends = dict(latest)
    losses = []
    gone = sorted(tp for tp in start if tp not in latest)
    if gone:
        losses.append(f"{_listed(gone)} {'is' if len(gone) == 1 else 'are'} gone: deleted, or no longer subscribed to")
    for tp, first in sorted(recreated.items()):
        at = start.get(tp)
        if at is not None and tp in ends and first < at:
            losses.append(f"{tp}: its topic was deleted and created again; the query was at offset {at} of the old one")
            ends[tp] = first
    losses += [
        f"{tp} ends at offset {latest[tp]}, before the query's position {start[tp]}"
        for tp in shrunk(start, latest)
        if tp not in recreated
    ]
    return Reconciled(ends, tuple(losses))


def _listed(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    return f"{shown} and {len(partitions) - 10} more" if len(partitions) > 10 else shown


# -- how much ----------------------------------------------------------------------------------------------------


def pending(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are between the two."""
    return sum(max(0, end - start.get(tp, end)) for tp, end in latest.items())


def admit(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_offsets: int) -> Positions:
    """The end of a micro-batch of about `max_offsets` offsets, each partition's share by how much it has.

    As with Spark's Kafka source no partition starves: one that has less than its share of one offset gets one. `start`
    has every partition of `latest`, the new ones too.
    """
    sizes = {tp: end - start[tp] for tp, end in latest.items() if tp in start and end > start[tp]}
    total = sum(sizes.values())
    ends = dict(latest)
    if total <= max_offsets:
        return ends
    for tp, size in sizes.items():
        share = max_offsets * size / total
        ends[tp] = min(latest[tp], start[tp] + max(1, math.floor(share)))
    return ends


# -- tasks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tasks of a micro-batch read, and each loss that was noticed, as a sentence."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def new_partitions(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Those whose first offset must be asked for."""
    return [tp for tp in end if tp not in start]


def plan(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    first_of_new: Mapping[TopicPartition, int],
    *,
    from_initial: bool = False,
) -> Plan:
    """The ranges between two positions. The new partitions of `end` begin at `first_of_new`; one not there is gone.

    The same positions give the same ranges, so that a batch that is done again reads the same. `from_initial`: `start`
    was not stored but is what the query would begin with now, after the batch of `end` was planned by a run that died.
    What is in `start` alone came later, and is no loss.
    """
    losses = []
    if not from_initial:
        gone = sorted(tp for tp in start if tp not in end)
        if gone:
            losses.append(f"{_listed(gone)} {'is' if len(gone) == 1 else 'are'} gone")
    ranges = []
    for tp in sorted(end):
        first = start.get(tp)
        if first is None:
            first = first_of_new.get(tp)
            if first is None:
                losses.append(f"{tp} was found but is gone before it was read")
                continue
            if first > 0:
                losses.append(f"{tp} is new but starts at offset {first}: what was before it is lost")
        if end[tp] < first and not from_initial:
            losses.append(f"{tp} goes back from offset {first} to {end[tp]}")
        ranges.append(OffsetRange(tp.topic, tp.partition, first, end[tp]))
    return Plan(tuple(r for r in ranges if r.size > 0), tuple(losses))


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges, those with the most offsets cut into several.

    None has more than `max_records` offsets. Then, where there are fewer than `min_partitions` ranges, the large ones
    are cut until there are about so many; empty ones are left out.
    """
    parts = [r for r in ranges if r.size > 0]
    if max_records is not None:
        parts = [piece for r in parts for piece in _cut(r, math.ceil(r.size / max_records))]
    if min_partitions is None or len(parts) >= min_partitions or not parts:
        return parts
    total = sum(r.size for r in parts)
    # Those too small to be cut take one task each and leave the others to share the rest.
    small = {r for r in parts if _share(r.size, total, min_partitions) == 1}
    rest = total - sum(r.size for r in small)
    wanted = max(min_partitions - len(small), 1)
    return [
        piece for r in parts for piece in ([r] if r in small else _cut(r, min(r.size, _share(r.size, rest, wanted))))
    ]


FEW_TASKS: Final = 32
PACKED_OFFSETS: Final = 1_000


def pack(ranges: Iterable[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """The ranges by task: each has its own, but where there are many, small ones share tasks.

    A task costs some 10 ms whatever it reads. Up to `FEW_TASKS` ranges have a task each. Of more, neighbours go
    together while they have no more than `PACKED_OFFSETS`, and no more than leaves about `FEW_TASKS` tasks.
    """
    parts = [r for r in ranges if r.size > 0]
    if len(parts) <= FEW_TASKS:
        return [(part,) for part in parts]
    most = min(PACKED_OFFSETS, math.ceil(sum(r.size for r in parts) / FEW_TASKS))
    tasks: list[tuple[OffsetRange, ...]] = []
    some: list[OffsetRange] = []
    offsets = 0
    for part in parts:
        if some and offsets + part.size > most:
            tasks.append(tuple(some))
            some, offsets = [], 0
        some.append(part)
        offsets += part.size
    tasks.append(tuple(some))
    return tasks


def _share(size: int, total: int, parts: int) -> int:
    return max(1, round(size / total * parts))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, a, b) for a, b in itertools.pairwise(edges)]


def lag(end_offset: Mapping[str, Any], latest_offset: Mapping[str, Any]) -> Positions:
    """How many offsets each partition still has after `end_offset`: the two are a progress report's, parsed."""
    at, latest = positions(end_offset), positions(latest_offset)
    return {tp: max(0, end - at.get(tp, 0)) for tp, end in sorted(latest.items())}
