"""Where replicas go when a broker is drained or replaced, or a topic is spread over other brokers. Pure functions.

The result of each function has only the partitions that change: the new replicas, the preferred leader first. Replicas
that stay keep their places in the list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition

Replicas = Mapping[TopicPartition, Sequence[int]]
Moves = dict[TopicPartition, list[int]]


class Target(NamedTuple):
    """A broker that can take replicas."""

    node_id: int
    rack: str | None = None


def drained(replicas: Replicas, leaving: Collection[int], targets: Iterable[Target]) -> Moves:
    """Replace the brokers `leaving` by others: in another rack than the rest of the partition if possible, and then the
    brokers with the fewest replicas.

    Raises Failure for a partition that has a replica on every remaining broker.
    """
    remaining = [target for target in targets if target.node_id not in leaving]
    racks = {target.node_id: target.rack for target in remaining}
    load = Counter(node_id for nodes in replicas.values() for node_id in nodes)
    leads = Counter(nodes[0] for nodes in replicas.values() if nodes)
    moves: Moves = {}
    for partition, nodes in sorted(replicas.items()):
        if not set(nodes) & set(leaving):
            continue
        new = list(nodes)
        for place, node_id in enumerate(nodes):
            if node_id not in leaving:
                continue
            others = [each for each in new if each != node_id]
            used = {racks.get(each) for each in others}
            free = [target for target in remaining if target.node_id not in new]
            if not free:
                raise Failure(
                    f"{partition} has {len(nodes)} replicas, and only "
                    f"{units.plural(len(remaining), 'broker')} would remain",
                    "Start another broker first, or `ottla topic reassign TOPIC -r N` gives its topic fewer replicas.",
                )
            chosen = min(
                free,
                key=lambda target: (
                    target.rack is not None and target.rack in used,
                    leads[target.node_id] if place == 0 else 0,
                    load[target.node_id],
                    target.node_id,
                ),
            )
            new[place] = chosen.node_id
            load[chosen.node_id] += 1
            if place == 0:
                leads[chosen.node_id] += 1
        moves[partition] = new
    return moves


def replaced(replicas: Replicas, old: int, new: int) -> Moves:
    """Put the broker `new` where `old` is. Raises Failure for a partition that is on both."""
    both = sorted(partition for partition, nodes in replicas.items() if old in nodes and new in nodes)
    if both:
        raise Failure(
            f"{both[0]} is on both brokers ({len(both)} partitions): drain broker {old} instead, or use a new broker"
        )
    return {
        partition: [new if node_id == old else node_id for node_id in nodes]
        for partition, nodes in sorted(replicas.items())
        if old in nodes
    }


def spread(replicas: Replicas, targets: Sequence[Target], factor: int | None = None) -> Moves:
    """Place partitions on these brokers in turn, with `factor` replicas each (default: as many as now).

    Brokers of different racks alternate. Raises Failure if there are fewer brokers than replicas.
    """
    order = _by_rack(targets)
    moves: Moves = {}
    for number, (partition, nodes) in enumerate(sorted(replicas.items())):
        count = len(nodes) if factor is None else factor
        if count > len(order):
            raise Failure(f"{partition} needs {count} replicas, and only {len(order)} brokers are given")
        # The second replicas of the partitions of one leader are on different brokers.
        shift = 1 + number // len(order) % max(1, len(order) - 1)
        first = number % len(order)
        rest = [order[(first + shift + each) % len(order)] for each in range(len(order))]
        new = [order[first], *(node_id for node_id in rest if node_id != order[first])][:count]
        if new != list(nodes):
            moves[partition] = new
    return moves


def _by_rack(targets: Sequence[Target]) -> list[int]:
    groups: dict[str | None, list[int]] = {}
    for target in sorted(targets, key=lambda each: (each.rack or "", each.node_id)):
        groups.setdefault(target.rack, []).append(target.node_id)
    order: list[int] = []
    while any(groups.values()):
        order += [nodes.pop(0) for nodes in groups.values() if nodes]
    return order
