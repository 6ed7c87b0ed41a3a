"""The replica that a consumer in a rack is sent to."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.partitions.replication.selector import RackAwareSelector
from ottla.replication.leader import ClusterView
from tests.unit.broker.test_replicated_partition import Scene
from tests.unit.replication.support import broker


@pytest.mark.parametrize(
    ("rack", "racks", "ends", "selected"),
    [
        ("b", {1: "a", 2: "b", 3: "b"}, {2: 3, 3: 2}, 2),
        ("b", {1: "a", 2: "b", 3: "b"}, {2: 2, 3: 3}, 3),
        ("b", {1: "b", 2: "b", 3: "b"}, {2: 3, 3: 3}, -1),
        ("c", {1: "a", 2: "b", 3: "b"}, {2: 3, 3: 3}, -1),
        ("b", {1: "a", 2: "b", 3: None}, {2: 1, 3: 3}, -1),
    ],
    ids=["most caught-up", "the other replica", "the leader's rack", "no replica", "without the offset"],
)
def test_consumer_reads_from_its_rack(
    tmp_path: Path, rack: str, racks: dict[int, str | None], ends: dict[int, int], selected: int
) -> None:
    scene = Scene(tmp_path)
    for node_id, end in ends.items():
        scene.fetch(node_id, end)
    brokers = {node_id: broker(node_id)._replace(rack=value) for node_id, value in racks.items()}
    selector = RackAwareSelector(ClusterView(1, brokers), rack)
    assert selector.select(scene.partition, 2) == selected


def test_fenced_follower_is_not_selected(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.fetch(2, 3)
    brokers = {1: broker(1), 2: broker(2, fenced=True)._replace(rack="b")}
    assert RackAwareSelector(ClusterView(1, brokers), "b").select(scene.partition, 2) == -1
