"""Samples of a group: what the protocol shows about it, taken several times."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.clients import admin as api
from ottla.clients.errors import ClientError, GroupNotFound
from ottla.common.ids import TopicPartition
from ottla.tools.admin.topic_facts import MIRROR_SETTINGS, copies_of
from ottla.tools.why.model import RecordAt, RecordReader, Watch

STEP_S: Final = 0.25
"""The time between two samples of the members: a member that crashes at once lives for a moment only."""


@dataclass(frozen=True)
class Offsets:
    """Offsets of a group's partitions at one time. `errors` has the partitions that could not be read."""

    at_ms: int
    positions: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable_ends: Mapping[TopicPartition, int]
    share_lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    errors: Mapping[TopicPartition, ClientError] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenTransaction:
    """The transaction that keeps the stable end of a partition. None: no coordinator knows it."""

    producer_id: int
    transactional_id: str | None
    start_ms: int | None
    timeout_ms: int | None
    mirror: str | None = None
    """The mirror that copies the topic: the transaction belongs to its source."""


@dataclass(frozen=True)
class Observation:
    """All samples of a group; `descriptions` are in the order of time."""

    group: str
    descriptions: tuple[api.GroupDescription, ...]
    first: Offsets
    last: Offsets
    transactions: Mapping[TopicPartition, OpenTransaction] = field(default_factory=dict)
    records: Mapping[TopicPartition, RecordAt] = field(default_factory=dict)


async def settled(call: Awaitable[dict[Any, Any]]) -> tuple[dict[Any, Any], Mapping[Any, ClientError]]:
    """Return the results of a call that may fail for some things only, and their errors."""
    try:
        return await call, {}
    except api.PartialFailure as failure:
        return dict(failure.results), failure.errors


async def observe(admin: api.AsyncAdmin, group: str, watch: Watch, records: RecordReader | None) -> Observation:
    """Sample a group for `watch.seconds`: its members each 0.25 s, its offsets at the start and the end."""
    described = await admin.describe_group(group)
    descriptions = [described]
    first = await read_offsets(admin, described, watch.now_ms())
    left = watch.seconds
    while left > 0:
        await watch.pause(min(left, STEP_S))
        left -= STEP_S
        try:
            descriptions.append(await admin.describe_group(group))
        except GroupNotFound:  # a group without offsets ends with its last member
            break
    last = await read_offsets(admin, descriptions[-1], watch.now_ms())
    held = [p for p, stable in last.stable_ends.items() if stable < last.ends.get(p, stable)]
    behind = {p: at for p, at in last.positions.items() if last.starts.get(p, at) <= at < last.ends.get(p, at)}
    return Observation(
        group,
        tuple(descriptions),
        first,
        last,
        await open_transactions(admin, held) if held else {},
        await records.read(behind) if records is not None and behind else {},
    )


async def read_offsets(admin: api.AsyncAdmin, group: api.GroupDescription, now_ms: int) -> Offsets:
    """Read the positions of a group, and the starts and ends of their partitions."""
    share_lags: dict[TopicPartition, int] = {}
    if group.type is api.GroupType.SHARE:
        shares = await admin.list_share_group_offsets(group.group_id)
        positions = {p: at.start_offset for p, at in shares.items()}
        share_lags = {p: at.lag for p, at in shares.items() if at.lag is not None}
    else:
        positions = {p: at.offset for p, at in (await admin.list_group_offsets(group.group_id)).items()}
    assigned = (partition for member in group.members for partition in member.assignment)
    partitions = sorted({*positions, *assigned})
    if not partitions:
        return Offsets(now_ms, positions, {}, {}, {}, share_lags)
    starts, errors = await settled(admin.list_offsets(dict.fromkeys(partitions, api.OffsetSpec.EARLIEST)))
    readable = dict.fromkeys(starts, api.OffsetSpec.LATEST)
    stable, _ = await settled(admin.list_offsets(readable, read_committed=True)) if readable else ({}, {})
    ends, _ = await settled(admin.list_offsets(readable)) if readable else ({}, {})
    return Offsets(now_ms, positions, _offsets(starts), _offsets(ends), _offsets(stable), share_lags, errors)


def _offsets(found: Mapping[TopicPartition, api.OffsetAt]) -> dict[TopicPartition, int]:
    return {partition: at.offset for partition, at in found.items()}


async def open_transactions(
    admin: api.AsyncAdmin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OpenTransaction]:
    """Return the earliest open transaction of each partition that has one."""
    producers, _ = await settled(admin.describe_producers(partitions))
    earliest = {
        partition: min(running, key=lambda each: each.transaction_start_offset)
        for partition, each_producer in producers.items()
        if (running := [each for each in each_producer if each.transaction_start_offset is not None])
    }
    if not earliest:
        return {}
    topics = [api.ConfigResource.topic(name) for name in sorted({partition.topic for partition in earliest})]
    copies = copies_of((await settled(admin.describe_configs(topics, names=MIRROR_SETTINGS)))[0])
    listed = await admin.list_transactions(producer_ids={each.producer_id for each in earliest.values()})
    names = {each.producer_id: each.transactional_id for each in listed}
    described, _ = await settled(admin.describe_transactions(names.values())) if names else ({}, {})
    found = {}
    for partition, producer in earliest.items():
        mirror = copies.get(partition.topic)
        if mirror is not None:
            # A producer of this cluster may have the same id.
            found[partition] = OpenTransaction(producer.producer_id, None, producer.last_timestamp_ms, None, mirror)
            continue
        name = names.get(producer.producer_id)
        known = described.get(name)
        # The coordinator ends only transactions whose partitions it knows.
        if known is not None and partition not in known.partitions:
            known = None
        found[partition] = OpenTransaction(
            producer.producer_id,
            name,
            known.start_ms if known is not None else producer.last_timestamp_ms,
            known.timeout_ms if known is not None else None,
        )
    return found
