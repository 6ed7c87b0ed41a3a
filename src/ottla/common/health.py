"""Readiness of one node, for probes: a decision from facts.

The command `ottla health` asks the node for them (`ottla.tools.health`). The node's own endpoint reads them from its
metadata (`ottla.broker.health`). Both answer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ottla.common import units
from ottla.common.ids import TopicPartition

State = Literal["starting", "catching_up", "broken", "ready"]


@dataclass(frozen=True)
class Health:
    """The state of a node, with the reasons why it is not ready, or may not stop."""

    node: int
    state: State
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """The facts that decide whether a node is ready."""

    node: int
    why_not_serving: str = ""
    """"" for a registered and unfenced broker."""
    failed_directories: int = 0
    behind: Sequence[TopicPartition] = ()
    """The partitions with a replica on the node that is not in sync."""


def readiness(standing: Standing) -> Health:
    """Return the state of the node: ready if it is unfenced, all its disks work and all its replicas are in sync."""
    node = standing.node
    if standing.why_not_serving:
        return Health(node, "starting", (f"the node {standing.why_not_serving}: it catches up with the metadata",))
    if failed := standing.failed_directories:
        return Health(node, "broken", (f"{units.plural(failed, 'log directory', 'log directories')} failed",))
    if standing.behind:
        return Health(node, "catching_up", (some("replicas of this node are not in sync", standing.behind),))
    return Health(node, "ready")


def why_not_serving(is_fenced: bool | None) -> str:
    """Return why a node does not serve clients as a broker; "" if it does. None: it is not registered."""
    if is_fenced is None:
        return "is not registered"
    return "is fenced" if is_fenced else ""


def some(what: str, names: Sequence[TopicPartition]) -> str:
    """Return how many partitions there are, with the first names."""
    shown = ", ".join(f"{each.topic}-{each.partition}" for each in names[:3])
    return f"{len(names)} {what}: {shown}{', ...' if len(names) > 3 else ''}"
