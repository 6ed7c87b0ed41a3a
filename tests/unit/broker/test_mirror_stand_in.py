"""The broker that reports problems of mirrored topics if the active controller, which cannot be asked, finds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors.stand_in import StandInNode, problems_of, stands_in
from ottla.common.slices import finish
from ottla.config import BrokerConfig
from ottla.controller.mirrors import SourceTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
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


def test_broker_finds_the_problems_of_the_controller() -> None:
    cluster = Cluster(1)
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    cluster.do(cluster.controller.create_topics(CreateTopicsRequest(topics=[topic])))
    sources = [SourceTopic(name, bytes(15) + bytes([at]), (0,), {}) for at, name in enumerate(("orders", "new"), 1)]
    found = finish(problems_of(node(1, 100, cluster.controller.image), "dr", 1, sources))
    assert found == cluster.do(cluster.controller.follow_source("dr", 1, sources))
    assert list(found) == ["orders"]
