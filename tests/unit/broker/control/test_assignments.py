"""A broker with several log directories reports where its replicas are."""

from __future__ import annotations

from ottla.broker.control.assignments import AssignmentPorts, DirectoryAssignments
from ottla.broker.controller_channel import ControllerChannel
from ottla.common.ids import TopicPartition
from ottla.metadata.image import EMPTY_IMAGE
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.test_directories import FIRST, SECOND, cluster_with_directories

from .support import NODE, Channels, Quorum


class World:
    """Broker 1 with two directories; t-0 is in the second one."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.cluster = cluster_with_directories()
        self.quorum = Quorum(self.cluster.controller)
        self.quorum.elect(NODE)
        self.logs: dict[TopicPartition, bytes] = {}
        channel = ControllerChannel(self.quorum, self.loop, self.loop.call_later, Channels())
        image = self.cluster.controller
        self.assignments = DirectoryAssignments(
            1,
            AssignmentPorts(
                channel, self.loop.call_later, lambda: image.image, lambda: self.cluster.epochs[1], self.logs.get
            ),
        )

    def publish(self) -> None:
        self.assignments.metadata_published(EMPTY_IMAGE, self.cluster.controller.image)

    @property
    def directory(self) -> bytes:
        return self.cluster.partition.directories[0]


def test_directory_is_reported_when_the_log_is_open() -> None:
    world = World()
    world.publish()
    world.loop.advance(1_000)
    assert world.quorum.operations == 0
    world.logs[TopicPartition("t", 0)] = SECOND
    world.publish()
    world.loop.advance(1_000)
    assert world.directory == SECOND
    world.loop.advance(10_000)
    assert world.quorum.operations == 1
    assert not world.loop.pending_timers


def test_moved_replica_is_reported_and_an_error_is_retried() -> None:
    world = World()
    world.logs[TopicPartition("t", 0)] = FIRST
    world.quorum.elect(None)
    world.assignments.changed()
    world.loop.advance(40_000)
    assert world.directory != FIRST
    world.quorum.elect(NODE)
    world.loop.advance(1_000)
    assert world.directory == FIRST


def test_broker_with_one_directory_reports_nothing() -> None:
    world = World()
    world.logs[TopicPartition("t", 0)] = SECOND
    world.cluster.start(1, log_dirs=[FIRST])
    world.publish()
    assert not world.loop.pending_timers
