"""Plans the offsets of micro-batches with pure functions: their ends, their tasks, and lost records.

A position is the next offset to read. Spark stores the positions of a query as JSON, `{"topic": {"0": 123}}`. Spark's
Kafka source has the same format, so each of the two sources can read a checkpoint of the other. The source calls:

    positions(json) -> reconcile(start, latest, ...) -> admit(start, latest, ...) -> json_of(end)
    plan(start, end, ...) -> split(ranges, ...) or pack(ranges)

Invariant: the ranges of a batch depend only on its start and end, so a re-run batch reads the same records. An end
before the start is a reset: the partition was recreated or truncated. That batch reads nothing of the partition, and
the next one continues from the new position. Every function costs O(partitions). Nothing here does I/O or knows Spark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.common.ids import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
OFFSET_MAX: Final = 2**63 - 1
IDLE: Final = "#idle"
"""In offsets, the name of the last time of an idle stream (`idle`). No topic can have it."""

Positions: TypeAlias = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The offsets from `start` to before `end` of one partition, read by one task."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets. Compaction and transactions may leave fewer records."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition."""
        return TopicPartition(self.topic, self.partition)


class PositionsError(ValueError):
    """A text or a checkpoint does not contain valid positions."""


# -- JSON ---------------------------------------------------------------------------------------------------------


def positions(offset: object) -> Positions:
    """Parse positions in the JSON format of Spark's Kafka source, without IDLE. Raises PositionsError."""
    found: Positions = {}
    if not isinstance(offset, Mapping):
        raise PositionsError(_expected(offset))
    for topic, by_partition in offset.items():
        if topic == IDLE:
            continue
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
    """Return positions as JSON. Equal positions give equal text, which Spark compares to detect new data."""
    json: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(at):
        json.setdefault(topic, {})[str(partition)] = at[TopicPartition(topic, partition)]
    return json


def lag(end_offset: object, latest_offset: object) -> Positions:
    """Return the offsets that each partition is behind, from the parsed offsets of a progress report of a query.

    Programs call it (docs/spark-offsets.md). Raises PositionsError.
    """
    at, latest = positions(end_offset), positions(latest_offset)
    return {tp: max(0, end - at.get(tp, 0)) for tp, end in sorted(latest.items())}


# -- lost records -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The ends of the partitions for this query, and a sentence about each detected loss."""

    latest: Positions
    losses: tuple[str, ...]


def shrunk(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions that end before the query's position. A retry may help: a new leader may lag."""
    return [tp for tp, at in start.items() if latest.get(tp, at) < at]


def reconcile(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    recreated: Mapping[TopicPartition, int],
) -> Reconciled:
    """Compare the ends of the partitions with a query at `start`.

    `recreated` are the first offsets of partitions whose topic was recreated: the query goes back to them. A partition
    that ends before `start` was truncated: the query goes back to its end. A partition that is not in `latest` was
    deleted and is omitted; if it is created again later, it counts as new.
    """
    ends = dict(latest)
    losses = []
    deleted = sorted(tp for tp in start if tp not in latest)
    if deleted:
        losses.append(f"{_no_longer_exist(deleted)}: deleted, or no longer subscribed to")
    for tp, first in sorted(recreated.items()):
        at = start.get(tp)
        if at is not None and tp in ends and first < at:
            losses.append(
                f"{tp}: its topic was deleted and created again; the query was at offset {at} of the old topic"
            )
            ends[tp] = first
    losses += [
        f"{tp} ends at offset {latest[tp]}, before the query's position {start[tp]}"
        for tp in shrunk(start, latest)
        if tp not in recreated
    ]
    return Reconciled(ends, tuple(losses))


def _no_longer_exist(partitions: Sequence[TopicPartition]) -> str:
    listed = ", ".join(map(str, partitions[:10]))
    if len(partitions) > 10:
        listed += f" and {len(partitions) - 10} more"
    return f"{listed} no longer {'exists' if len(partitions) == 1 else 'exist'}"


# -- size of a micro-batch ----------------------------------------------------------------------------------------


def pending(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets between the two positions."""
    return sum(max(0, end - start.get(tp, end)) for tp, end in latest.items())


def admit(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], max_offsets: int) -> Positions:
    """Return the end of a micro-batch of about `max_offsets` offsets.

    Each partition gets a share in proportion to its pending offsets, but at least one offset, so that no partition
    starves. Spark's Kafka source does the same. `start` must contain every partition of `latest`, including new ones.
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


# -- tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges of a micro-batch, and a sentence about each detected loss."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def new_partitions(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions whose first offset must be requested."""
    return [tp for tp in end if tp not in start]


def plan(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    first_of_new: Mapping[TopicPartition, int],
    *,
    from_initial: bool = False,
) -> Plan:
    """Return the ranges between two positions.

    The new partitions of `end` start at `first_of_new`; those without an entry were deleted. Equal positions give equal
    ranges, so a re-run batch reads the same records. `from_initial`: a run planned the batch of `end` and crashed, and
    `start` is not stored but computed now. A partition that is only in `start` was created since, and is not a loss.
    """
    losses = []
    if not from_initial:
        deleted = sorted(tp for tp in start if tp not in end)
        if deleted:
            losses.append(_no_longer_exist(deleted))
    ranges = []
    for tp in sorted(end):
        first = start.get(tp)
        if first is None:
            first = first_of_new.get(tp)
            if first is None:
                losses.append(f"{tp} was deleted before it was read")
                continue
            if first > 0:
                losses.append(f"{tp} is new but starts at offset {first}: earlier records are lost")
        if end[tp] < first and not from_initial:
            losses.append(f"{tp} goes back from offset {first} to {end[tp]}")
        ranges.append(OffsetRange(tp.topic, tp.partition, first, end[tp]))
    return Plan(tuple(r for r in ranges if r.size > 0), tuple(losses))


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Split the largest ranges.

    First, no range may have more than `max_records` offsets. Then, if there are fewer than `min_partitions` ranges, the
    largest ones are split until there are about that many. Empty ranges are omitted.
    """
    parts = [r for r in ranges if r.size > 0]
    if max_records is not None:
        parts = [piece for r in parts for piece in _cut(r, math.ceil(r.size / max_records))]
    if min_partitions is None or len(parts) >= min_partitions or not parts:
        return parts
    total = sum(r.size for r in parts)
    # Ranges that are too small to split get one task each; the others share the remaining tasks.
    small = {r for r in parts if _share(r.size, total, min_partitions) == 1}
    rest = total - sum(r.size for r in small)
    wanted = max(min_partitions - len(small), 1)
    return [
        piece for r in parts for piece in ([r] if r in small else _cut(r, min(r.size, _share(r.size, rest, wanted))))
    ]


FEW_TASKS: Final = 32
FEW_OFFSETS: Final = 250
"""A micro-batch of at most this many offsets is one task. If a program needs long for them, the query falls behind, so
that the next micro-batches are larger, and have more tasks again."""
PACKED_OFFSETS: Final = 1_000


def pack(ranges: Iterable[OffsetRange], few: int = 0) -> list[tuple[OffsetRange, ...]]:
    """Assign the ranges to tasks.

    A task has a fixed cost of about 10 ms. Ranges with at most `few` offsets together are one task. Otherwise up to
    `FEW_TASKS` ranges have a task each. If there are more, adjacent ranges share a task while they have at most
    `PACKED_OFFSETS` offsets together, and few enough for about `FEW_TASKS` tasks.
    """
    parts = [r for r in ranges if r.size > 0]
    total = sum(r.size for r in parts)
    if parts and total <= few:
        return [tuple(parts)]
    if len(parts) <= FEW_TASKS:
        return [(part,) for part in parts]
    limit = min(PACKED_OFFSETS, math.ceil(total / FEW_TASKS))
    tasks: list[tuple[OffsetRange, ...]] = []
    packed: list[OffsetRange] = []
    offsets = 0
    for part in parts:
        if packed and offsets + part.size > limit:
            tasks.append(tuple(packed))
            packed, offsets = [], 0
        packed.append(part)
        offsets += part.size
    tasks.append(tuple(packed))
    return tasks


def _share(size: int, total: int, parts: int) -> int:
    return max(1, round(size / total * parts))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    return [OffsetRange(whole.topic, whole.partition, a, b) for a, b in itertools.pairwise(edges)]
