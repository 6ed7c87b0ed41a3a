"""A metadata quorum of several nodes: elections, replication, divergence, snapshots, observers, voter changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.common.errors import ErrorCode, KafkaError

from .support import Quorum, create

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def run() -> Run:
    def go(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(story, 60))

    return go


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_three_voters_elect_a_leader_and_all_nodes_publish_what_it_commits(
    tmp_path: Path, run: Run, *, static: bool
) -> None:
    async def story() -> None:
        async with Quorum(tmp_path, observers=1, static=static) as quorum:
            await quorum.create("a", "b")
            await quorum.published("a", "b")
            leader = await quorum.leader()
            images = [node.running.image for node in quorum.nodes.values()]
            assert all(image.features == images[0].features for image in images)
            assert all(node.running.leader is not None for node in quorum.nodes.values())
            assert {node.running.leader[0] for node in quorum.nodes.values() if node.running.leader} == {leader.node_id}
            others = [node for node in quorum.nodes.values() if node is not leader]
            for node in others:
                refused = create(node.running, "c")
                assert isinstance(refused.error, KafkaError)
                assert refused.error.code is ErrorCode.NOT_CONTROLLER

    run(story())
