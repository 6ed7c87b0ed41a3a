"""Assigns the replicas of new partitions to brokers.

Brokers form a ring in which racks alternate. The leader of each partition is the next broker of the ring, starting at
a random one. Its followers are the brokers after it; after each full round of the ring they are shifted by one more
place, so that the followers of a broker's partitions spread over all other brokers.

Invariants, as in Kafka: a rack gets a second replica only when every rack has one, and a fenced broker gets a replica
only if no other broker of a rack with as few replicas is left. A fenced broker never leads. A broker in controlled
shutdown, or whose log directories are all cordoned (KIP-1066), gets no replica; when it has stopped, it is a fenced
broker. Leaders are balanced to within one partition per broker. Cost: O(partitions x replication factor x brokers).
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.errors import ErrorCode
from ottla.controller.state import RandomSource, refuse
from ottla.metadata.image import BrokerImage


def place(
    brokers: Iterable[BrokerImage], partitions: int, replication_factor: int, random: RandomSource
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, leader first. Raises INVALID_REPLICATION_FACTOR if brokers are missing."""
    registered = sorted(broker for broker in brokers if not (_is_stopping(broker) or broker.is_cordoned))
    if replication_factor < 1:
        # Requests were checked before, but `default.replication.factor` may be any number, as in Kafka.
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    usable = _ring([broker for broker in registered if not broker.fenced])
    if not usable:
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > len(registered):
        refuse(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(registered)} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    spare = _ring([broker for broker in registered if broker.fenced])
    start = random.randrange(len(usable))
    return [_replicas(usable, spare, start + index, replication_factor) for index in range(partitions)]


def _ring(brokers: list[BrokerImage]) -> list[BrokerImage]:
    """Order brokers with alternating racks: the first broker of each rack, then the second of each rack."""
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
    chosen = [leader, *_spread([*others, *spare], leader, count - 1)]
    return tuple(broker.broker_id for broker in chosen)


def _is_stopping(broker: BrokerImage) -> bool:
    """Whether the broker moves its leaders away. The registration says so until the next one, also after the stop."""
    return broker.in_controlled_shutdown and not broker.fenced


def _spread(pool: list[BrokerImage], leader: BrokerImage, count: int) -> list[BrokerImage]:
    """Take `count` brokers of the pool, each from a rack with the fewest replicas so far."""
    load: dict[str | None, int] = {leader.rack: 1}
    taken: list[BrokerImage] = []
    left = list(pool)
    while left and len(taken) < count:
        best = min(left, key=lambda broker: load.get(broker.rack, 0))  # ties go to the first broker
        left.remove(best)
        taken.append(best)
        load[best.rack] = load.get(best.rack, 0) + 1
    return taken
