"""Decides a change of one partition: its in-sync replicas, leader, epochs and assignment. KIP-455, KIP-841, KIP-966.

Each change of a partition passes through `partition_change`, so that these rules hold whatever caused the change:

- A leader is an acceptable replica of the ISR. If the ISR is empty, it is one of the eligible leader replicas (ELR),
  then the last known leader. Only an unclean election takes another replica; it loses records.
- Without the ELR feature the last in-sync replica stays in the ISR, so that it can lead again.
- With the feature, a replica that leaves an ISR below `min.insync.replicas` joins the ELR: it holds everything
  committed, because the high watermark does not advance below that size.
- The leader epoch increases if the leader changes or a replica is removed. It never decreases.

Pure: no image is read, and the result is a record or None if nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.common.ids import DIRECTORY_UNASSIGNED, Uuid
from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.protocol import metadata_records as m

RECOVERED, RECOVERING = 0, 1
Replicas = tuple[int, ...]


class Election(Enum):
    """Which leader to elect: the preferred one if it is in sync, any in-sync one, or if need be an out-of-sync one."""

    PREFERRED = 0
    ONLINE = 1
    UNCLEAN = 2


class Target(NamedTuple):
    """The wanted values; None retains the present value. `directories` are for single replicas."""

    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    recovery_state: int | None = None
    directories: Mapping[int, Uuid] = MappingProxyType({})
    unclean_shutdown: int | None = None
    """A broker that lost its unsynced records: it must not be an eligible leader replica."""


class ChangeRules(NamedTuple):
    """The rules of the cluster: who may lead, the effective `min.insync.replicas`, and the feature levels."""

    acceptable: frozenset[int]
    min_isr: int = 1
    election: Election = Election.ONLINE
    eligible_enabled: bool = False
    shrink_starts_epoch: bool = False
    """Brokers before metadata.version 3.6-IV0 need a new leader epoch when the ISR shrinks."""
    names_directories: bool = True


class _Plan(NamedTuple):
    """The partition's future values."""

    replicas: Replicas
    isr: Replicas
    adding: Replicas
    removing: Replicas
    elr: Replicas
    leader: int = NO_LEADER
    unclean: bool = False


def partition_change(
    topic_id: Uuid, index: int, partition: PartitionImage, target: Target, rules: ChangeRules
) -> m.PartitionChangeRecord | None:
    """Return the record that brings the partition to the target, or None if it is there."""
    plan = _with_elr(partition, _complete(_plan(partition, target)), target, rules)
    plan = _elected(partition, plan, rules)
    if not plan.isr and not rules.eligible_enabled:
        plan = plan._replace(isr=partition.isr)
    changes = _differences(partition, plan, target, rules)
    if not changes:
        return None
    return m.PartitionChangeRecord(partition_id=index, topic_id=topic_id, **changes)


def _plan(partition: PartitionImage, target: Target) -> _Plan:
    return _Plan(
        partition.replicas if target.replicas is None else target.replicas,
        partition.isr if target.isr is None else target.isr,
        partition.adding_replicas if target.adding is None else target.adding,
        partition.removing_replicas if target.removing is None else target.removing,
        partition.eligible_leader_replicas,
    )


def without(replicas: Iterable[int], removed: Iterable[int]) -> Replicas:
    """The replicas without the removed ones, in order."""
    gone = set(removed)
    return tuple(replica for replica in replicas if replica not in gone)


def _complete(plan: _Plan) -> _Plan:
    """Finish a reassignment once every replica that stays is in sync."""
    if not (plan.adding or plan.removing):
        return plan
    replicas, isr = without(plan.replicas, plan.removing), without(plan.isr, plan.removing)
    if not replicas or not isr or not set(replicas) <= set(isr):
        return plan
    return plan._replace(replicas=replicas, isr=isr, adding=(), removing=(), elr=without(plan.elr, plan.removing))


def _with_elr(partition: PartitionImage, plan: _Plan, target: Target, rules: ChangeRules) -> _Plan:
    if not rules.eligible_enabled:
        return plan
    if len(plan.isr) >= rules.min_isr:
        return plan._replace(elr=())
    candidates = dict.fromkeys((*plan.elr, *partition.isr))
    excluded = {*plan.isr, target.unclean_shutdown}
    return plan._replace(elr=tuple(r for r in candidates if r not in excluded and r in plan.replicas))


def _elected(partition: PartitionImage, plan: _Plan, rules: ChangeRules) -> _Plan:
    leader, unclean = _elect(partition, plan, rules)
    if unclean:
        return plan._replace(leader=leader, unclean=True, isr=(leader,), elr=())
    if leader in plan.elr:
        return plan._replace(leader=leader, isr=(leader,), elr=without(plan.elr, (leader,)))
    return plan._replace(leader=leader)


def _elect(partition: PartitionImage, plan: _Plan, rules: ChangeRules) -> tuple[int, bool]:
    """Return the leader, or NO_LEADER, and whether it may lack records."""
    clean = [r for r in plan.replicas if r in rules.acceptable and (r in plan.isr or (not plan.isr and r in plan.elr))]
    if rules.election is Election.PREFERRED and plan.replicas[0] in clean:
        return plan.replicas[0], False
    if partition.leader in clean:
        return partition.leader, False
    if clean:
        return clean[0], False
    if _last_known_leads(partition, plan, rules):
        return partition.last_known_elr[0], True
    if rules.election is Election.UNCLEAN:
        for replica in plan.replicas:
            if replica in rules.acceptable:
                return replica, True
    return NO_LEADER, False


def _last_known_leads(partition: PartitionImage, plan: _Plan, rules: ChangeRules) -> bool:
    """No other replica can have more records than the last known leader of a partition without ISR and ELR."""
    known = partition.last_known_elr
    return not plan.isr and not plan.elr and len(known) == 1 and known[0] in rules.acceptable


def _differences(partition: PartitionImage, plan: _Plan, target: Target, rules: ChangeRules) -> dict[str, Any]:
    # Without the feature, a stock cluster's eligible replicas are retained until the partition has a leader.
    eligible = plan.elr if rules.eligible_enabled or plan.leader == NO_LEADER else ()
    values = (
        ("isr", partition.isr, plan.isr),
        ("replicas", partition.replicas, plan.replicas),
        ("adding_replicas", partition.adding_replicas, plan.adding),
        ("removing_replicas", partition.removing_replicas, plan.removing),
        ("eligible_leader_replicas", partition.eligible_leader_replicas, eligible),
        ("last_known_elr", partition.last_known_elr, _last_known(partition, plan)),
    )
    changes: dict[str, Any] = {name: list(future) for name, present, future in values if future != present}
    if _starts_epoch(partition, plan, rules):
        changes["leader"] = plan.leader
    state = partition.leader_recovery_state if target.recovery_state is None else target.recovery_state
    state = RECOVERING if plan.unclean else state
    if state != partition.leader_recovery_state:
        changes["leader_recovery_state"] = state
    directories = _directories(partition, plan, target)
    if rules.names_directories and directories != partition.directories:
        changes["directories"] = list(directories)
    return changes


def _last_known(partition: PartitionImage, plan: _Plan) -> Replicas:
    if plan.leader != NO_LEADER:
        return ()
    if partition.isr and not plan.isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    return partition.last_known_elr


def _starts_epoch(partition: PartitionImage, plan: _Plan, rules: ChangeRules) -> bool:
    if plan.leader != partition.leader or not set(partition.replicas) <= set(plan.replicas):
        return True
    return rules.shrink_starts_epoch and not set(partition.isr) <= set(plan.isr)


def _directories(partition: PartitionImage, plan: _Plan, target: Target) -> tuple[Uuid, ...]:
    if plan.replicas is partition.replicas and not target.directories:
        return partition.directories
    # A replica of the partition has its directory there; the directories of new replicas are in the target.
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    known.update(target.directories)
    return tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in plan.replicas)
