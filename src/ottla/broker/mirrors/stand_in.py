"""The problems of a mirror's topics and access rules, found by a broker if the active controller is not a broker.

Commands ask the brokers, and cannot ask such a controller. So one broker decides as the controller does, and changes
nothing: with the same rules and the same metadata, it finds the same problems. A change that is still due after some
time shows that the controller does not make it, e.g. because it cannot reach the source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.cluster.config_rules import BrokerConfigRules
from ottla.common.system_random import SystemRandom
from ottla.controller.controller import Controller
from ottla.controller.state import ControllerSettings, Outcome
from ottla.metadata.acls import acl_of
from ottla.protocol import metadata_records as m

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.common.completion import Completion
    from ottla.common.slices import Slices
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.message import Message

R = TypeVar("R")

# A controller may have just been elected.
_LATE_MS: Final = 60_000


class StandInNode(Protocol):
    """The parts of the node that find the problems."""

    settings: NodeSettings
    schedulers: Schedulers
    metadata: MetadataShell
    clock: Clock

    @property
    def node_id(self) -> int: ...


class Decider(Protocol):
    """The metadata of the active controller, or a stand-in."""

    def submit(self, operation: Callable[[Controller], Slices[Outcome[R]]]) -> Completion[R]: ...


def stands_in(node: StandInNode) -> bool:
    """Whether this broker reports the problems: it has the lowest id of the brokers, and none is the controller."""
    leader, brokers = node.metadata.leader, node.metadata.image.brokers
    if leader is None or leader[0] in brokers:
        return False
    return node.node_id == min((each for each, broker in brokers.items() if broker.is_active), default=None)


class StandIn:
    """Decides as the active controller, without an effect. `overdue` after each comparison with the source."""

    def __init__(self, node: StandInNode, interval_ms: int) -> None:
        """`interval_ms`: how often the controller compares."""
        self._node = node
        self.late_ms = _LATE_MS + 2 * interval_ms
        self._due: dict[Hashable, None] = {}
        self._since_ms: dict[Hashable, int] = {}
        self._compared_ms = -self.late_ms

    def submit(self, operation: Callable[[Controller], Slices[Outcome[R]]]) -> Completion[R]:
        """Complete with the response of an operation, as `MetadataShell.submit` does; its records are only noted."""
        return self._node.schedulers.worker.submit(self._decide(operation))

    def _decide(self, operation: Callable[[Controller], Slices[Outcome[R]]]) -> Slices[R]:
        config, image = self._node.settings.static, self._node.metadata.image
        controller = Controller(
            node_id=self._node.node_id,
            cluster_id="",
            rules=BrokerConfigRules(config),
            random=SystemRandom(),
            settings=ControllerSettings.from_config(config),
            image=image,
        )
        outcome = yield from operation(controller)
        self._due.update(dict.fromkeys(changed(image, outcome.records)))
        return outcome.response

    def overdue(self) -> list[Hashable]:
        """Changes that the controller should have made `late_ms` ago: names of topics, rules, and ids of rules."""
        now_ms, found = self._node.clock.monotonic_ms(), self._due
        if now_ms - self._compared_ms > self.late_ms:
            # The controller could not compare, either.
            self._since_ms = {}
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in found}
        self._due, self._compared_ms = {}, now_ms
        return [each for each, since_ms in self._since_ms.items() if now_ms - since_ms >= self.late_ms]

    def problem(self, task: str) -> str:
        """The problem that the controller does not finish a task."""
        leader = self._node.metadata.leader
        name = "The active controller" if leader is None else f"The active controller, node {leader[0]},"
        return (
            f"{name} has not {task} for more than {self.late_ms // 1000} s; check its log, and that it reaches the "
            "source"
        )


def changed(image: MetadataImage, records: Iterable[Message]) -> Iterable[Hashable]:
    """Name the changes of records, so that a repeated decision has the same names."""
    for record in records:
        if isinstance(record, m.AccessControlEntryRecord):
            yield acl_of(record)
        elif isinstance(record, m.RemoveAccessControlEntryRecord):
            yield record.id
        elif isinstance(record, m.ConfigRecord):
            yield record.resource_name
        elif isinstance(record, m.PartitionRecord) and record.topic_id in image.topics_by_id:
            yield image.topics_by_id[record.topic_id].name
