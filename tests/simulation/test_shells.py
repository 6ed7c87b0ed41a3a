"""The shells of quorum, controller and broker session under crashes and a faulty network; a failure names its seed.

`OTTLA_SEEDS=2000 pytest tests/simulation/test_shells.py` runs more seeds.
"""

from __future__ import annotations

import errno
import logging
import os

import pytest

from ottla.common.completion import Completion
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.simulation.world.shells import IDLE_MS, ShellWorld

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nodes_agree_on_the_metadata_and_keep_what_they_acknowledge(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int) -> ShellWorld:
    """A run of 60 actions and faults, and the healing."""
    world = ShellWorld(seed, 3)
    logger = logging.getLogger("ottla")
    logger.addHandler(world.problems)
    try:
        return run_world(world)
    finally:
        logger.removeHandler(world.problems)


def run_world(world: ShellWorld) -> ShellWorld:
    """See `run_seed`."""
    topics = Topics(world)
    world.run(800)
    for _ in range(60):
        world.run(world.random.randint(1, 150))
        if world.random.random() < 0.5:
            topics.act()
        else:
            break_something(world)
    check_recovery(world, topics)
    return world


class Topics:
    """Creates and deletes topics, and remembers what was acknowledged."""

    def __init__(self, world: ShellWorld) -> None:
        self.world = world
        self.count = 0
        self.created: dict[str, bytes] = {}
        self.deleted: set[str] = set()

    def act(self) -> None:
        """Submit an operation at the active controller."""
        node = self.world.active()
        if node is not None:
            node.after(0, lambda: self._act(node.shell.submit))

    def _act(self, submit: object) -> None:
        random = self.world.random
        if random.random() < 0.2 and self.created:
            name = random.choice(list(self.created))
            self.deleted.add(name)
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
            submit(lambda controller: controller.delete_topics(request, 5))  # type: ignore[operator]
            return
        self.count += 1
        name = f"t{self.count}"
        created = CreateTopicsRequest(topics=[CreatableTopic(name, 2, random.randint(1, 3))], timeout_ms=1000)

        def answer(done: Completion[object]) -> None:
            if done.error is None and not done.result().topics[0].error_code:  # type: ignore[attr-defined]
                self.created[name] = done.result().topics[0].topic_id  # type: ignore[attr-defined]
                self.check()

        submit(lambda controller: controller.create_topics(created)).on_done(answer)  # type: ignore[operator]

    def check(self) -> None:
        """Each acknowledged topic exists."""
        image = self.world.history.image
        kept = self.created.keys() - self.deleted
        missing = [name for name in kept if self.created[name] not in image.topics_by_id]
        assert not missing, self.world.fail(f"acknowledged topics {missing} are lost")


def break_something(world: ShellWorld) -> None:
    """One random fault, or the end of faults."""
    random = world.random
    action = random.random()
    running = sorted(world.running)
    node = random.choice(running) if running else 0
    others = [each for each in world.nodes if each != node]
    if action < 0.25 and running:
        world.crash(node)
    elif action < 0.3:
        for each in running:
            world.crash(each, power_cut=True)
    elif action < 0.55:
        world.start_all()
    elif action < 0.65 and running:
        world.blocked = {pair for each in others for pair in ((node, each), (each, node))}
    elif action < 0.7 and running:
        world.blocked = {(node, each) for each in others}
    elif action < 0.8:
        world.blocked = set()
    elif action < 0.9 and running:
        world.pause(node, random.randint(50, 1_000))
    elif action < 0.95 and running:
        world.disks[node].crash_after = random.randint(0, 20)
    elif running:
        world.disks[node].fail_writes = errno.EIO


def check_recovery(world: ShellWorld, topics: Topics) -> None:
    """Without faults, all nodes have the same metadata within seconds, and all brokers serve."""
    world.heal()
    for _ in range(40):
        world.run(500)
        world.start_all()
        images = [node.shell.image for node in world.running.values()]
        brokers = images[0].brokers
        served = all(
            node in brokers and brokers[node].is_active and brokers[node].epoch == run.lifecycle.broker_epoch
            for node, run in world.running.items()
        )
        if served and len({image.offset for image in images}) == 1 and len(images) == len(world.nodes):
            break
    else:
        states = {node: (run.shell.raft.role, run.lifecycle.state, run.failure) for node, run in world.running.items()}
        pytest.fail(world.fail(f"not settled after 20 s: {states}"))
    topics.check()
    # Also without a request, records are written and all nodes apply them.
    world.run(3 * IDLE_MS)
    for node in world.running.values():
        assert node.shell.image.offset > images[0].offset, world.fail("nothing is written while the cluster is idle")
