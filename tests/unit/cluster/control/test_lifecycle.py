"""A broker from its registration to its controlled shutdown, with a real controller core."""

from __future__ import annotations

import pytest

from ottla.cluster.control.lifecycle import BrokerLifecycle, LifecyclePorts, LifecycleSettings, LifecycleState
from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.errors import ErrorCode
from ottla.metadata.image import NO_LEADER
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.broker_registration import BrokerRegistrationResponse
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.support import Cluster, registration

from .support import NODE, Channels, Quorum

RUNNING = LifecycleState.RUNNING


class World:
    """Broker 5, whose requests the controller on node 1 decides at once. Node 1 also has a broker."""

    def __init__(self, incarnation: int = 1) -> None:
        self.loop = ManualLoop()
        self.cluster = Cluster(1)
        self.quorum = Quorum(self.cluster.controller)
        self.quorum.elect(NODE)
        self.problems: list[str] = []
        self.cordoned: tuple[bytes, ...] | None = None
        self.broker = self.start(incarnation)

    def start(self, incarnation: int) -> BrokerLifecycle:
        channel = ControllerChannel(self.quorum, self.loop, self.loop.call_later, Channels())
        image = lambda: self.cluster.controller.image  # noqa: E731
        ports = LifecyclePorts(channel, image, self.loop.call_later, self.problems.append, lambda: self.cordoned)
        return BrokerLifecycle(registration(5, None, incarnation), ports, LifecycleSettings())

    def run(self) -> None:
        """Bring the broker to the state RUNNING."""
        self.broker.start()
        self.broker.allow_unfencing()
        self.loop.advance(500)
        assert self.broker.state is RUNNING

    def create(self, *replicas: int) -> None:
        topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, list(replicas))])
        operation = self.quorum.submit(lambda c: c.create_topics(CreateTopicsRequest(topics=[topic])))
        assert operation.result().topics[0].error_code == 0

    @property
    def leader(self) -> int:
        return self.cluster.controller.image.topics_by_name["t"].partitions[0].leader

    @property
    def fenced(self) -> bool:
        return self.cluster.controller.image.brokers[5].fenced


def test_broker_registers_catches_up_and_is_unfenced_when_it_can_serve() -> None:
    world = World()
    world.broker.start()
    world.loop.advance(300)
    assert world.broker.registered.done
    assert world.broker.caught_up.done
    assert (world.broker.state, world.fenced) == (LifecycleState.RECOVERY, True)
    world.broker.allow_unfencing()
    assert world.broker.unfenced.done
    assert (world.broker.state, world.fenced) == (RUNNING, False)
    assert world.broker.broker_epoch == world.cluster.controller.image.brokers[5].epoch


def test_heartbeats_keep_the_session() -> None:
    world = World()
    world.run()
    for _ in range(30):
        world.loop.advance(1_000)
        expired = world.quorum.submit(lambda c: c.fence_one_expired_broker(world.loop.monotonic_ms()))
        assert not expired.result()
    assert not world.fenced


def test_fenced_broker_returns_as_soon_as_it_sees_that_it_is_fenced() -> None:
    world = World()
    world.run()
    world.quorum.submit(lambda c: c.fence_broker(5))
    assert world.fenced
    world.broker.metadata_published(world.cluster.controller.image)
    assert not world.fenced


def test_registration_is_repeated_while_another_process_has_the_id_and_the_node_stops_at_the_deadline() -> None:
    world = World()
    world.run()
    other = world.start(incarnation=2)
    other.start()
    world.loop.advance(11_900)
    assert not other.registered.done
    assert not world.problems
    world.loop.advance(200)
    assert "another process is registered with this node.id, and it is alive" in world.problems[0]
    assert world.broker.state is RUNNING


def test_new_controller_extends_the_session_of_the_other_process_with_the_id() -> None:
    world = World()
    world.run()
    other = world.start(incarnation=2)
    other.start()
    for _ in range(5):
        world.loop.advance(10_000)
        assert not world.problems
        other.controller_changed()
    world.loop.advance(11_000)
    assert "unable to register" in world.problems[0], "the deadline of the registration"


def test_broker_takes_over_when_the_session_of_the_previous_process_expires() -> None:
    world = World()
    world.run()
    world.broker.close()
    restarted = world.start(incarnation=2)
    restarted.start()
    restarted.allow_unfencing()
    world.loop.advance(20_000)
    assert restarted.state is RUNNING
    assert restarted.broker_epoch > world.broker.broker_epoch


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION])
def test_hopeless_registration_stops_the_node_with_one_line(code: ErrorCode) -> None:
    world = World()
    world.quorum.elect(2)
    channels = Channels()
    channel = ControllerChannel(world.quorum, world.loop, world.loop.call_later, channels)
    ports = LifecyclePorts(
        channel, lambda: world.cluster.controller.image, world.loop.call_later, world.problems.append
    )
    broker = BrokerLifecycle(registration(6), ports, LifecycleSettings())
    broker.start()
    channels.answer(BrokerRegistrationResponse(error_code=code))
    [problem] = world.problems
    assert "Unable to register broker 6" in problem
    assert not channels.sent


def test_unregistered_broker_registers_again_with_a_new_epoch() -> None:
    world = World()
    world.run()
    before = world.broker.broker_epoch
    world.quorum.submit(lambda c: c.unregister_broker(5)).result()
    world.loop.advance(2_500)
    assert world.broker.broker_epoch > before
    assert world.broker.broker_epoch == world.cluster.controller.image.brokers[5].epoch
    assert not world.fenced


def test_cordoned_directories_are_reported_at_once() -> None:
    world = World()
    directory = registration(5).log_dirs[0]
    world.cordoned = (directory,)
    world.run()

    def reported() -> tuple[bytes, ...] | None:
        return world.cluster.controller.image.brokers[5].cordoned_directories

    assert reported() == (directory,)
    world.cordoned = ()
    world.broker.directories_changed()
    world.loop.advance(1)
    assert reported() == ()
    world.quorum.submit(lambda c: c.unregister_broker(5)).result()
    world.cordoned = (directory,)
    world.loop.advance(2_500)
    assert reported() == (directory,)


def test_new_controller_gets_a_heartbeat_at_once() -> None:
    world = World()
    world.run()
    before = world.quorum.operations
    world.broker.controller_changed()
    assert world.quorum.operations == before + 1


def test_heartbeat_is_sent_at_once_when_another_broker_stops() -> None:
    world = World()
    world.run()
    world.create(1, 5)
    world.broker.metadata_published(world.cluster.controller.image)
    before = world.quorum.operations
    beat = BrokerHeartbeatRequest(1, world.cluster.epochs[1], 0, want_shut_down=True)
    world.quorum.submit(lambda c: c.heartbeat(beat, world.loop.monotonic_ms()))
    assert world.leader == 5
    for _ in range(3):
        world.broker.metadata_published(world.cluster.controller.image)
    assert world.quorum.operations == before + 2, "one heartbeat for the image"


def test_failed_directory_is_reported_at_once() -> None:
    world = World()
    world.run()
    first, second = (bytes([5]) * 15 + bytes([number]) for number in (1, 2))
    world.broker._registration.log_dirs = [first, second]
    world.broker._registration.incarnation_id = b"2" * 16
    world.quorum.submit(lambda c: c.unregister_broker(5)).result()
    world.loop.advance(5_000)
    assert world.cluster.controller.image.brokers[5].directories == (first, second)
    world.broker.directory_failed(second)
    assert world.cluster.controller.image.brokers[5].directories == (first,)
    world.loop.advance(60_000)
    assert not world.problems


def test_node_stops_if_no_controller_can_be_notified_of_a_failed_directory() -> None:
    world = World()
    world.run()
    world.quorum.elect(None)
    world.broker.directory_failed(b"d" * 16)
    world.loop.advance(29_000)
    assert not world.problems
    world.loop.advance(2_000)
    assert "offline log dir" in world.problems[0]


def test_controlled_shutdown_moves_the_leadership_first() -> None:
    world = World()
    world.run()
    world.create(5, 1)
    assert world.leader == 5
    done = world.broker.shut_down()
    assert world.leader == 1
    # Broker 1 must have read that it leads.
    beat = BrokerHeartbeatRequest(1, world.cluster.epochs[1], world.cluster.controller.image.offset)
    world.quorum.submit(lambda c: c.heartbeat(beat, world.loop.monotonic_ms()))
    world.loop.advance(100)
    assert done.done
    assert world.fenced
    assert world.broker.state is LifecycleState.SHUTTING_DOWN
    assert not world.loop.pending_timers


def test_controlled_shutdown_of_the_last_replica_leaves_the_partition_without_a_leader() -> None:
    world = World()
    world.run()
    world.create(5)
    assert world.broker.shut_down() is not None
    world.loop.advance(1_000)
    assert world.leader == NO_LEADER


def test_controlled_shutdown_ends_without_a_controller() -> None:
    world = World()
    world.run()
    world.quorum.elect(None)
    done = world.broker.shut_down()
    world.loop.advance(2_500)
    assert not done.done
    world.loop.advance(1_000)
    assert done.done
    assert not world.loop.pending_timers
