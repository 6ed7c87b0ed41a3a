"""Compares the topics of a mirror in both clusters, and finds what a failback would drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.admin import Admin, ConfigResource, EpochEnd, FetchedBatches, OffsetAt, OffsetSpec, ResourceType
from ottla.common.ids import TopicPartition
from ottla.records import BatchHeader
from ottla.tools.admin.log_comparison import Comparison, LogSide

FETCH_BYTES: Final = 4 << 20
UNKNOWN: Final = -1


class Bounds(NamedTuple):
    """The first and the next offset of a partition that consumers can read."""

    start: int
    end: int
    leader_epoch: int


class Side(NamedTuple):
    """A partition in one cluster, by its name there."""

    admin: Admin
    key: TopicPartition


class Range(NamedTuple):
    """The offsets of a partition that both clusters have, and why others are not compared."""

    start: int
    end: int
    skipped: list[str]

    @classmethod
    def of(cls, source: Bounds | None, target: Bounds) -> Range:
        """The range to compare; `source` is None if the source has no such partition."""
        if source is None:
            return cls(target.start, target.start, ["the source has no such partition"])
        start, end = max(source.start, target.start), min(source.end, target.end)
        skipped = []
        if source.start != target.start:
            later = "source" if source.start > target.start else "target"
            skipped.append(f"the log of the {later} begins later, at offset {start}")
        if source.end > end:
            skipped.append(f"{source.end - end} offsets from {end} on are not copied yet")
        if target.end > end:
            skipped.append(f"only the target has the {target.end - end} offsets from {end} on")
        return cls(min(start, end), end, skipped)


def bounds(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Return the offsets of each partition. Raises the exceptions of an admin client."""
    if not partitions:
        return {}
    starts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {key: Bounds(starts[key].offset, ends[key].offset, ends[key].leader_epoch) for key in partitions}


def existing(admin: Admin, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The partitions that a cluster has."""
    counts = {topic.name: topic.partitions for topic in admin.list_topics(include_internal=True)}
    return [key for key in partitions if key.partition < counts.get(key.topic, 0)]


def ranges_of(
    source: Admin, target: Admin, keys: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, Range]:
    """The range to compare of each partition. `keys` are the partitions of the target with their names at the source.

    Raises the exceptions of an admin client.
    """
    theirs, ours = bounds(source, existing(source, list(keys.values()))), bounds(target, list(keys))
    return {key: Range.of(theirs.get(other), ours[key]) for key, other in keys.items()}


def comparison(source: Side, target: Side, compared: Range) -> Comparison:
    """Prepare the comparison of a partition. Raises the exceptions of an admin client."""
    # Without a common offset, the source may not even have the topic.
    is_compacted = compared.end > compared.start and (_is_compacted(source) or _is_compacted(target))
    return Comparison(_side("source", source), _side("target", target), is_compacted=is_compacted)


def _is_compacted(side: Side) -> bool:
    resource = ConfigResource(ResourceType.TOPIC, side.key.topic)
    return "compact" in (side.admin.describe_config(resource)["cleanup.policy"].value or "")


def row_of(key: TopicPartition, compared: Range, found: Comparison) -> dict[str, Any]:
    """The result of one partition, for people and programs."""
    skipped = list(compared.skipped)
    if found.deleted:
        skipped.append(f"{found.deleted} offsets were deleted during the comparison")
    if found.compacted:
        skipped.append(f"{found.compacted} records were compacted in only one cluster")
    return {
        "topic": key.topic,
        "partition": key.partition,
        "result": "different"
        if found.differing
        else "equal"
        if compared.end > compared.start
        else "nothing to compare",
        "start": compared.start,
        "end": compared.end,
        "equal_bytes": found.size,
        "different_batches": found.differing,
        "differences": [each._asdict() for each in found.differences],
        "skipped": skipped,
    }


def _side(name: str, side: Side) -> LogSide:
    admin, key = side

    def fetch(offset: int) -> FetchedBatches:
        return _fetch(admin, key, offset)

    def log_start() -> int:
        found: dict[TopicPartition, OffsetAt] = admin.list_offsets({key: OffsetSpec.EARLIEST})
        return found[key].offset

    return LogSide(name, fetch, log_start)


def _fetch(admin: Admin, key: TopicPartition, offset: int) -> FetchedBatches:
    try:
        return admin.fetch_batches({key: offset}, max_bytes=FETCH_BYTES)[key]
    except ExceptionGroup as failed:
        # The only partition of the call has the only error.
        raise failed.exceptions[0] from None


# -- failback ----------------------------------------------------------------------------------------------------

Ends = Callable[[int], EpochEnd]


def common_end(ours: Ends, theirs: Ends, epoch: int) -> int:
    """The end of the records that two logs have in common, by the leader epochs of both (KIP-101).

    `ours` and `theirs` return the end of an epoch in a log, and `epoch` is not below the last common one. It is 0 if no
    epoch is common.
    """
    while True:
        other = theirs(epoch)
        one = ours(other.leader_epoch) if other.leader_epoch >= 0 else other
        if one.leader_epoch < 0:
            return 0
        if one.leader_epoch == other.leader_epoch:
            return min(one.end_offset, other.end_offset)
        epoch = one.leader_epoch


class Loss(NamedTuple):
    """The records of a partition that a failback would drop."""

    start: int
    end: int
    records: int
    first_timestamp_ms: int
    last_timestamp_ms: int


def loss(local: Side, source: Side, both: tuple[Bounds, Bounds]) -> Loss:
    """Return what only `local` has of a partition. `both` are the bounds in `local` and in `source`."""
    here, there = both

    def ends(side: Side) -> Ends:
        return lambda epoch: side.admin.ends_of_epochs({side.key: epoch})[side.key]

    start = common_end(ends(local), ends(source), min(here.leader_epoch, there.leader_epoch))
    start = min(max(start, here.start), here.end)
    records, first_ms, last_ms = 0, UNKNOWN, UNKNOWN
    for header in _headers(local, start, here.end):
        if not header.is_control:
            records += header.record_count
            first_ms = header.base_timestamp if first_ms == UNKNOWN else min(first_ms, header.base_timestamp)
            last_ms = max(last_ms, header.max_timestamp)
    return Loss(start, here.end, records, first_ms, last_ms)


def _headers(side: Side, start: int, end: int) -> Iterator[BatchHeader]:
    for batch in _side("cluster", side).batches(start, end):
        yield batch.header
