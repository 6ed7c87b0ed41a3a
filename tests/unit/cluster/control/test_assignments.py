"""A broker reports in which log directories its replicas are."""

from __future__ import annotations

from collections.abc import Callable

from ottla.cluster.control.assignments import AssignmentPorts, DirectoryAssignments
from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.ids import TopicPartition
from ottla.metadata.image import EMPTY_IMAGE
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.test_directories import FIRST, LOST, SECOND, cluster_with_directories

from .support import NODE, Channels, Quorum

REPLICA = TopicPartition("t", 0)


class World:
    """Broker 1 with two directories; t-0 is in the second one."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.cluster = cluster_with_directories()
        self.quorum = Quorum(self.cluster.controller)
        self.quorum.elect(NODE)
        self.logs: dict[TopicPartition, bytes] = {}
        self.on_look_up: Callable[[TopicPartition], None] = lambda _: None
        channel = ControllerChannel(self.quorum, self.loop, self.loop.call_later, Channels())
        image = self.cluster.controller
        self.assignments = DirectoryAssignments(
            1,
            AssignmentPorts(
                channel, self.loop.call_later, lambda: image.image, lambda: self.cluster.epochs[1], self._look_up
            ),
        )

    def _look_up(self, replica: TopicPartition) -> bytes | None:
        self.on_look_up(replica)
        return self.logs.get(replica)

    def publish(self) -> None:
        self.assignments.metadata_published(EMPTY_IMAGE, self.cluster.controller.image)

    def open(self, directory: bytes) -> None:
        self.logs[REPLICA] = directory
        self.assignments.changed(REPLICA)

    @property
    def directory(self) -> bytes:
        return self.cluster.partition.directories[0]


def test_directory_is_reported_when_the_log_is_open() -> None:
    world = World()
    world.publish()
    world.loop.advance(1_000)
    assert world.quorum.operations == 0
    world.open(SECOND)
    world.loop.advance(1_000)
    assert world.directory == SECOND
    world.loop.advance(10_000)
    assert world.quorum.operations == 1
    assert not world.loop.pending_timers


def test_moved_replica_is_reported_and_an_error_is_retried() -> None:
    world = World()
    world.quorum.elect(None)
    world.open(FIRST)
    world.loop.advance(40_000)
    assert world.directory != FIRST
    world.quorum.elect(NODE)
    world.loop.advance(1_000)
    assert world.directory == FIRST


def test_only_directory_of_a_broker_is_reported_if_the_metadata_shows_another_one() -> None:
    """A broker whose disk was replaced: its replicas are in sync, but cannot lead until then."""
    world = World()
    world.open(SECOND)
    world.loop.advance(1_000)
    world.cluster.now_ms += 10_000
    world.cluster.start(1, incarnation=2, log_dirs=[LOST])
    world.logs[REPLICA] = LOST
    world.publish()
    world.loop.advance(1_000)
    assert world.directory == LOST
    assert world.quorum.operations == 2


def test_topic_that_agrees_is_not_compared_again() -> None:
    world = World()
    looked_up: list[TopicPartition] = []
    world.on_look_up = looked_up.append
    world.open(SECOND)
    world.loop.advance(1_000)
    count = len(looked_up)
    for _ in range(3):
        world.publish()
        world.loop.advance(1_000)
    assert len(looked_up) <= count + 1
