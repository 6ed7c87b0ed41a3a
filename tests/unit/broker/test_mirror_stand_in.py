"""The broker that reports problems of mirrored topics if the active controller, which cannot be asked, finds them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors.stand_in import StandIn, StandInNode, changed, stands_in
from ottla.common.completion import Completion
from ottla.common.slices import Slices, finish
from ottla.config import BrokerConfig
from ottla.controller.controller import Controller
from ottla.controller.mirrors import SourceTopic
from ottla.metadata.acls import record_of
from ottla.metadata.snapshot import partition_record
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.metadata_records import RemoveAccessControlEntryRecord
from ottla.security.acl import Acl, Operation, Pattern, PatternType, PermissionType, ResourceType
from tests.storage.helpers import ManualClock
from tests.unit.controller.support import Cluster

CONFIG = BrokerConfig({"node.id": "1", "log.dirs": "/unused", "listeners": "PLAINTEXT://127.0.0.1:0"})


def node(node_id: int, leader: int | None, image: Any) -> StandInNode:
    metadata = SimpleNamespace(image=image, leader=None if leader is None else (leader, {}))
    return cast(
        "StandInNode", SimpleNamespace(node_id=node_id, metadata=metadata, settings=SimpleNamespace(static=CONFIG))
    )


@pytest.mark.parametrize(
    ("node_id", "leader", "expected"),
    [(2, 100, True), (3, 100, False), (1, 100, False), (2, 3, False), (2, None, False)],
)
def test_first_active_broker_stands_in_for_a_controller_that_is_not_a_broker(
    node_id: int, leader: int | None, expected: bool
) -> None:
    brokers = {each: SimpleNamespace(is_active=each != 1) for each in (1, 2, 3)}
    assert stands_in(node(node_id, leader, SimpleNamespace(brokers=brokers))) is expected


class Simulated:
    """A controller, and the stand-in for it on broker 1."""

    def __init__(self) -> None:
        self.cluster, self.clock = Cluster(1), ManualClock()
        self.node = node(1, 100, self.cluster.controller.image)
        self.node.clock = self.clock
        self.node.schedulers = cast("Any", SimpleNamespace(worker=SimpleNamespace(submit=self._finished)))
        self.stand_in = StandIn(self.node, 5_000)

    def _finished(self, work: Slices[Any]) -> Completion[Any]:
        return Completion.of(finish(work))

    def follow(self, sources: list[SourceTopic], after_s: int = 0) -> tuple[dict[str, str], list[Hashable]]:
        """The problems that the stand-in finds `after_s` later, and the changes that are overdue."""
        self.clock.now += after_s * 1000
        self.node.metadata = cast("Any", SimpleNamespace(image=self.cluster.controller.image, leader=(100, {})))
        done: Completion[dict[str, str]] = self.stand_in.submit(
            partial(Controller.follow_source, mirror="dr", replication_factor=1, topics=sources)
        )
        return done.result(), self.stand_in.overdue()


def topics(*names: str, settings: Mapping[str, str] = MappingProxyType({})) -> list[SourceTopic]:
    return [SourceTopic(name, bytes(15) + bytes([at]), (0,), settings) for at, name in enumerate(names, 1)]


def test_broker_finds_the_problems_of_the_controller() -> None:
    simulated = Simulated()
    cluster = simulated.cluster
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    cluster.do(cluster.controller.create_topics(CreateTopicsRequest(topics=[topic])))
    sources = topics("orders", "new")
    found, _ = simulated.follow(sources)
    assert found == cluster.do(cluster.controller.follow_source("dr", 1, sources))
    assert list(found) == ["orders"]


def test_topics_that_the_controller_does_not_create_or_change_are_reported_after_a_while() -> None:
    simulated = Simulated()
    late_s = simulated.stand_in.late_ms // 1000
    sources = topics("orders")
    assert simulated.follow(sources) == ({}, [])
    assert simulated.follow(sources, late_s - 1) == ({}, [])
    assert simulated.follow(sources, 1) == ({}, ["orders"])
    assert "node 100, has not done it for more than 70 s" in simulated.stand_in.problem("done it")
    # The controller reaches the source again.
    simulated.cluster.do(simulated.cluster.controller.follow_source("dr", 1, sources))
    assert simulated.follow(sources, 1) == ({}, [])
    changed = topics("orders", settings={"retention.ms": "1"})
    assert simulated.follow(changed, 1) == ({}, [])
    assert simulated.follow(changed, late_s) == ({}, ["orders"])


def test_no_change_is_overdue_after_an_interruption_of_the_source() -> None:
    simulated = Simulated()
    late_s = simulated.stand_in.late_ms // 1000
    simulated.follow(topics("orders"))
    assert simulated.follow(topics("orders"), late_s + 1) == ({}, [])
    assert simulated.follow(topics("orders"), late_s) == ({}, ["orders"])


def test_changes_have_the_same_names_in_repeated_decisions() -> None:
    simulated = Simulated()
    simulated.cluster.do(simulated.cluster.controller.follow_source("dr", 1, topics("orders")))
    image = simulated.cluster.controller.image
    [(topic_id, partition)] = [(each.topic_id, each.partitions[0]) for each in image.topics_by_id.values()]
    acl = Acl(Pattern(ResourceType.TOPIC, "t", PatternType.LITERAL), "User:a", "*", Operation.READ, PermissionType.DENY)
    rows = [record_of(bytes(15) + bytes([each]), acl) for each in (1, 2)]
    removed = RemoveAccessControlEntryRecord(id=bytes(16))
    found = list(changed(image, [partition_record(topic_id, 0, partition), *rows, removed]))
    assert found == ["orders", acl, acl, removed.id]
