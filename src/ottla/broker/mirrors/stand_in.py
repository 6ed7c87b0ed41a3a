"""The problems of a mirror's topics, found by a broker if the active controller is not a broker.

Commands ask the brokers, and cannot ask such a controller. So one broker compares the topics as the controller does,
and changes nothing: with the same rules and the same metadata, it finds the same problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.config_rules import BrokerConfigRules
from ottla.common.system_random import SystemRandom
from ottla.controller import mirrors
from ottla.controller.state import ControllerSettings, State

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.slices import Slices
    from ottla.controller.mirrors import SourceTopic


class StandInNode(Protocol):
    """The parts of the node that find the problems."""

    settings: NodeSettings
    metadata: MetadataShell

    @property
    def node_id(self) -> int: ...


def stands_in(node: StandInNode) -> bool:
    """Whether this broker reports the problems: it has the lowest id of the brokers, and none is the controller."""
    leader, brokers = node.metadata.leader, node.metadata.image.brokers
    if leader is None or leader[0] in brokers:
        return False
    return node.node_id == min((each for each, broker in brokers.items() if broker.is_active), default=None)


def problems_of(
    node: StandInNode, mirror: str, replication_factor: int, topics: Iterable[SourceTopic]
) -> Slices[dict[str, str]]:
    """The problems of topics by name, as `Controller.follow_source` returns them."""
    config = node.settings.static
    settings = ControllerSettings.from_config(config)
    state = State(node.metadata.image, node.node_id, "", BrokerConfigRules(config), SystemRandom(), settings)
    outcome = yield from mirrors.follow(state, mirror, replication_factor, topics)
    return outcome.response
