"""A mirror between two clusters while nodes of both are killed, lose power or are cut off, and records are lost.

`OTTLA_SEEDS=500 pytest tests/simulation/test_mirrored_replicas.py` runs more seeds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulation.world.mirrored_replicas import MirroredReplicas
from tests.simulation.world.replicas import contents, values_of

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "15")))


@contextmanager
def worlds_of(seed: int) -> Iterator[MirroredReplicas]:
    worlds = MirroredReplicas(seed)
    asyncio.events._set_running_loop(worlds.source.loop)  # type: ignore[arg-type]
    try:
        yield worlds
    finally:
        asyncio.events._set_running_loop(None)
        worlds.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_target_equals_the_source_after_failures_and_unclean_elections(seed: int) -> None:
    with worlds_of(seed) as worlds:
        source, target = worlds.source, worlds.target
        random = source.random
        for _ in range(100):
            event = random.random()
            for node_id in source.nodes:
                source.produce(node_id)
            if event < 0.25:
                break_one(worlds, random.choice((1, 2, 3)))
            elif event < 0.32:
                worlds.elect_uncleanly()
            elif event < 0.36:
                worlds.is_link_cut = not worlds.is_link_cut
            elif event < 0.5:
                for world in (source, target):
                    world.heal()
                    world.start(random.choice((1, 2, 3)))
            worlds.run(random.choice((0, 1, 5, 20, 100, 400)))
            source.check_lag()
            target.check_lag()
            worlds.check()
        worlds.settle()
        worlds.check_equal()


def break_one(worlds: MirroredReplicas, node_id: int) -> None:
    """Kill a node of one of the clusters, cut its power, or cut it off."""
    random = worlds.source.random
    action, power = random.random(), random.random() < 0.4
    if action < 0.35:
        worlds.kill(worlds.source, node_id, power=power)
    elif action < 0.75:
        worlds.kill(worlds.target, node_id, power=power)
    elif action < 0.85:
        random.choice((worlds.source, worlds.target)).isolate(node_id)
    elif worlds.target.nodes[node_id].up and not worlds.target.cut:
        worlds.target.cut.add(node_id)  # the controller has not noticed it yet: the node stays in sync


def test_records_that_the_source_loses_are_dropped_on_each_replica_of_the_target() -> None:
    with worlds_of(1) as worlds:
        source = worlds.source
        source.produce(1)
        worlds.run(1_000)
        source.kill(2, power=False)
        worlds.run(300)
        for _ in range(10):
            source.produce(1)
        worlds.run(1_000)
        assert [node.log.high_watermark for node in worlds.target.nodes.values()] == [11, 11, 11]
        worlds.check()
        # This follower has dropped nothing yet, and is in sync for the controller.
        worlds.target.cut.add(3)
        worlds.elect_uncleanly()
        worlds.run(500)
        assert source.partition.leader == 2
        for _ in range(3):
            source.produce(2)
        worlds.run(500)
        leader = worlds.target.nodes[1].log
        assert (leader.high_watermark, leader.log_end_offset) == (1, 4)
        worlds.check()
        worlds.settle()
        worlds.check_equal()
        assert len(values_of(contents(source.nodes[1].log))) == 4
