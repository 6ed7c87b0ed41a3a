"""The parts of a node that its coordinators use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.common.completion import Completion
    from ottla.partitions.partitions import Partitions
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


@dataclass(frozen=True, slots=True)
class CoordinatorPorts:
    """See the module's docstring; the functions send requests to the active controller."""

    node_id: int
    settings: NodeSettings
    metadata: MetadataShell
    endpoints: NodeEndpoints
    clock: Clock
    schedulers: Schedulers
    partitions: Partitions
    create_topic: Callable[[str], Completion[None]]
    allocate_producer_ids: Callable[[], Completion[AllocateProducerIdsResponse]]
