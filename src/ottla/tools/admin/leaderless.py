"""Partitions that have no leader, or replicas that are in sync and cannot lead: why, and what an operator can do.

docs/cluster.md, "No leader", explains each case.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.clients import admin as api

PAGE = 'docs/cluster.md, "No leader"'


def active_brokers(admin: api.Admin) -> set[int]:
    """The brokers that are registered and not fenced."""
    return {broker.node_id for broker in admin.describe_cluster().brokers}


def cannot_lead(partition: api.PartitionDescription, active: Collection[int]) -> list[int]:
    """The active brokers whose replicas have every acknowledged record, in a log directory that is not registered."""
    if not partition.offline_replicas:
        return []
    return [node for node in _complete(partition) if node in active and node in partition.offline_replicas]


def way_out(partition: api.PartitionDescription, active: Collection[int]) -> str | None:
    """The next step for a partition without a leader, or with a replica that cannot lead; None if all is well."""
    stuck = cannot_lead(partition, active)
    complete = _complete(partition)
    if partition.leader is not None:
        return f"restore the log directory of {_named(stuck)}, which cannot lead, and restart it" if stuck else None
    if not complete:
        return "no replica has every acknowledged record: elect-leaders --unclean gives up what is missing"
    stopped = [node for node in complete if node not in active]
    if stopped:
        return f"start {_named(stopped)}"
    if stuck:
        return f"restore the log directory of {_named(stuck)}, or give up its records with elect-leaders --unclean"
    return f"wait for the election of {_named(complete)}"


def _complete(partition: api.PartitionDescription) -> Sequence[int]:
    """The replicas that can be elected without a loss: in sync, or else eligible, or else the last leader."""
    return partition.isr or partition.eligible_leader_replicas or partition.last_known_elr


def _named(nodes: Sequence[int]) -> str:
    return f"broker {' or '.join(map(str, nodes))}"
