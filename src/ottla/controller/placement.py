"""Where the replicas of new partitions go.

Brokers stand in a ring in which racks alternate. Partition after partition, the leader moves one place on; its
followers are the next places, further apart after each full turn, so that a broker's followers spread over all others.
A rack gets a second replica only when every rack has one, a fenced broker only when no other is left, and never leads.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.errors import ErrorCode
from ottla.controller.state import RandomSource, refuse
from ottla.metadata.image import BrokerImage


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, random: RandomSource
) -> list[tuple[int, ...]]:
    """Replicas of each partition, the leader first. Raises INVALID_REPLICATION_FACTOR if there are too few brokers."""
    everyone = sorted(brokers)
    if replication_factor < 1:
        # Requests are checked before; `default.replication.factor` may be any number, as in Kafka.
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if replication_factor > len(everyone):
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(everyone)} broker(s) are registered.",
        )
    usable = _ring([broker for broker in everyone if not broker.fenced])
    if not usable:
        refuse(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    spare = _ring([broker for broker in everyone if broker.fenced])
    start = random.randrange(len(usable))
    return [_replicas(usable, spare, start + index, replication_factor) for index in range(partitions)]


def _ring(brokers: list[BrokerImage]) -> list[BrokerImage]:
    """Racks alternating: the first broker of each rack, then the second of each."""
    seen: dict[str | None, int] = {}
    turns = []
    for broker in brokers:
        turn = seen[broker.rack] = seen.get(broker.rack, -1) + 1
        turns.append((turn, broker.rack or "", broker))
    return [broker for _, _, broker in sorted(turns, key=lambda item: (item[0], item[1], item[2].broker_id))]


def _replicas(usable: list[BrokerImage], spare: list[BrokerImage], turn: int, count: int) -> tuple[int, ...]:
    position, size = turn % len(usable), len(usable)
    leader = usable[position]
    others = [usable[(position + step) % size] for step in range(1, size)]
    if others:
        shift = (turn // size) % len(others)
        others = others[shift:] + others[:shift]
    chosen = [leader]
    for pool in (others, spare):
        chosen += _spread(pool, chosen, count - len(chosen))
    return tuple(broker.broker_id for broker in chosen)


def _spread(pool: list[BrokerImage], chosen: list[BrokerImage], count: int) -> list[BrokerImage]:
    """The first `count` of the pool, brokers of racks that hold the fewest replicas first."""
    load: dict[str | None, int] = {}
    for broker in chosen:
        load[broker.rack] = load.get(broker.rack, 0) + 1
    taken: list[BrokerImage] = []
    left = list(pool)
    while left and len(taken) < count:
        best = min(left, key=lambda broker: load.get(broker.rack, 0))  # the first of equals
        left.remove(best)
        taken.append(best)
        load[best.rack] = load.get(best.rack, 0) + 1
    return taken
