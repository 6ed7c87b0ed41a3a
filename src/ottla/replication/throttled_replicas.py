"""The replicas that the settings of topics throttle. KIP-73."""

from __future__ import annotations


def throttles(replicas: str, node_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a node a valid `*.replication.throttled.replicas` names; None for all."""
    if replicas.strip() == "*":
        return None
    pairs = (entry.split(":") for entry in replicas.split(",") if entry.strip())
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
