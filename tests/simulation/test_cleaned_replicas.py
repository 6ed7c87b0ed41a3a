"""Compaction, retention, policies and directory moves of a replicated partition, while its nodes fail.

`OTTLA_SEEDS=500 pytest tests/simulation/test_cleaned_replicas.py` runs more seeds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from ottla.partitions.replication import directory_moves
from tests.simulation.world.cleaned_replicas import NAME, CleanedReplicas

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "12")))
STEPS = 150


@contextmanager
def replicas_of(seed: int) -> Iterator[CleanedReplicas]:
    replicas = CleanedReplicas(seed)
    asyncio.events._set_running_loop(replicas.world.loop)  # type: ignore[arg-type]
    try:
        with mock.patch.object(directory_moves, "CHUNK_BYTES", 200):
            yield replicas
    finally:
        asyncio.events._set_running_loop(None)
        for node in replicas.world.nodes.values():
            if node.up:
                node.kill(loses_page_cache=False)


def happen(replicas: CleanedReplicas) -> None:
    """One event."""
    world, random = replicas.world, replicas.random
    node = world.nodes[random.choice((1, 2, 3))]
    event = random.random()
    if event < 0.4:
        for each in world.nodes:
            for _ in range(random.choice((1, 2, 5))):
                replicas.produce(each)
    elif event < 0.48:
        replicas.restart(node, power=random.random() < 0.5)
    elif event < 0.52:
        world.kill(node.node_id, power=random.random() < 0.5)
    elif event < 0.57:
        world.start(node.node_id)
    elif event < 0.6:
        world.isolate(node.node_id)
    elif event < 0.65:
        world.heal()
    elif not node.up or node.logs.get(NAME) is None:
        return
    elif event < 0.78:
        replicas.cleaners.step(node)
    elif event < 0.83:
        replicas.retain(node)
    elif event < 0.91:
        replicas.sync(node)
    elif event < 0.95:
        replicas.move(node)
    elif event < 0.98:
        replicas.change_policy()
    else:
        node.disk.crash_after = random.randint(0, 20)


def settle(replicas: CleanedReplicas) -> None:
    """Repair everything, and let the nodes replicate."""
    world = replicas.world
    for node in world.nodes.values():
        node.disk.revive()
    world.heal()
    for node_id in world.nodes:
        world.start(node_id)
    for _ in range(10):
        replicas.do(lambda: world.run(1_000))
        world.check_lag()


def run_seed(seed: int) -> CleanedReplicas:
    with replicas_of(seed) as replicas:
        for _ in range(STEPS):
            replicas.do(lambda: happen(replicas))
            replicas.do(lambda: replicas.world.run(replicas.random.choice((0, 1, 5, 20, 100, 400))))
            replicas.world.check_lag()
        settle(replicas)
        replicas.check_end()
        return replicas


@pytest.mark.parametrize("seed", SEEDS)
def test_cleaned_replicas_keep_what_they_must(seed: int) -> None:
    run_seed(seed)
