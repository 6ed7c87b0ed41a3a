"""The active controller by itself: expired sessions, dead processes, preferred and unclean leaders."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.control.connections import BrokerConnections
from ottla.cluster.control.duties import ControllerDuties, DutySettings
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller import Controller
from ottla.metadata.image import NO_LEADER, TOPIC, MetadataImage
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.metadata_records import ConfigRecord
from tests.unit.broker.harness import Connection, ManualLoop
from tests.unit.controller.support import registration
from tests.unit.controller.test_alter_partition import alter
from tests.unit.controller.test_heartbeats import Brokers

from .support import NODE, Quorum


class Metadata(Quorum):
    node_id = NODE

    @property
    def image(self) -> MetadataImage:
        assert self.controller is not None
        return self.controller.image


class World:
    """Brokers 1 to 3; t-0 is on 2, 3 and 1. Node 1 is the active controller. The test answers the probes."""

    def __init__(self, *, elected: bool = True, **settings: Any) -> None:
        self.loop = ManualLoop()
        self.cluster = Brokers(3)
        self.cluster.create(2, 3, 1)
        self.controller: Controller = self.cluster.controller
        self.metadata = Metadata(self.controller)
        self.connections = BrokerConnections()
        self.probes: list[tuple[list[int], Completion[bool]]] = []
        self.metadata.elect(2)
        self.duties = ControllerDuties(
            self.metadata,
            self.loop,
            self.loop.call_later,
            DutySettings(**settings),
            self.connections,
            self._probe,
        )
        self.clients = {broker_id: Connection() for broker_id in (2, 3)}
        if elected:
            for broker_id, client in self.clients.items():
                self.connections.note(broker_id, client)
            self.elect()
            self.loop.advance(100)

    def elect(self) -> None:
        self.controller.begin_sessions(self.loop.monotonic_ms())
        self.metadata.elect(NODE)

    def _probe(self, endpoints: Any) -> Completion[bool]:
        completion: Completion[bool] = Completion()
        self.probes.append(([endpoint.port for endpoint in endpoints], completion))
        return completion

    def answer(self, *, dead: bool) -> None:
        self.probes.pop(0)[1].complete(dead)

    def beat(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            request = BrokerHeartbeatRequest(broker_id, self.cluster.epochs[broker_id], 10_000)
            self.metadata.submit(lambda c, r=request: c.heartbeat(r, self.loop.monotonic_ms())).result()  # type: ignore[misc]

    @property
    def fenced(self) -> list[int]:
        return self.cluster.fenced()


def test_brokers_without_heartbeats_are_fenced_one_after_the_other() -> None:
    world = World()
    for _ in range(10):
        world.loop.advance(1_000)
        world.beat(3)
    world.loop.advance(1_500)
    assert world.fenced == [2]
    assert world.cluster.partition.leader == 3


def test_broker_of_the_controller_itself_is_never_expired() -> None:
    world = World()
    world.loop.advance(60_000)
    assert world.fenced == [2, 3]


def test_other_nodes_have_no_duties() -> None:
    world = World()
    world.metadata.elect(3)
    operations = world.metadata.operations
    world.loop.advance(60_000)
    assert world.metadata.operations == operations
    assert not world.loop.pending_timers


def test_broker_is_fenced_at_once_if_its_connection_closed_and_its_listeners_refuse_connections() -> None:
    world = World()
    world.clients[2].drop()
    assert world.fenced == []
    world.answer(dead=True)
    assert world.fenced == [2]
    assert (world.cluster.partition.leader, world.cluster.partition.isr) == (3, (3, 1))


def test_closed_connection_alone_fences_no_broker() -> None:
    world = World()
    world.clients[2].drop()
    world.answer(dead=False)
    world.loop.advance(1_000)
    assert world.fenced == []


def test_broker_that_connected_again_during_the_probe_is_not_fenced() -> None:
    world = World()
    world.clients[2].drop()
    world.connections.note(2, Connection())
    world.answer(dead=True)
    assert world.fenced == []


def test_broker_with_a_second_connection_is_not_probed() -> None:
    world = World()
    world.connections.note(2, Connection())
    world.clients[2].drop()
    assert not world.probes


def test_broker_that_registered_again_during_the_probe_is_not_fenced() -> None:
    world = World()
    world.clients[2].drop()
    world.cluster.now_ms = world.loop.monotonic_ms()
    world.cluster.start(2, incarnation=2)
    world.beat(2)
    assert world.fenced == []
    world.answer(dead=True)
    assert world.fenced == []


def test_fenced_broker_or_one_that_stopped_is_not_probed() -> None:
    world = World()
    world.metadata.submit(lambda c: c.fence_broker(2)).result()
    world.clients[2].drop()
    assert not world.probes


def test_new_controller_probes_the_brokers_that_do_not_connect() -> None:
    world = World(elected=False)
    world.elect()
    world.connections.note(3, world.clients[3])
    world.loop.advance(100)
    assert len(world.probes) == 1
    world.answer(dead=True)
    assert world.fenced == [2]


def test_broker_that_restarted_before_the_election_registers_without_waiting() -> None:
    world = World(elected=False)
    world.elect()
    world.connections.note(3, world.clients[3])
    world.loop.advance(100)
    world.cluster.now_ms = world.loop.monotonic_ms()
    for broker_id in (1, 2):
        assert world.cluster.start(broker_id, incarnation=2) > 0
    with pytest.raises(KafkaError):
        world.cluster.start(3, incarnation=2)


def test_loopback_address_of_another_machine_proves_nothing() -> None:
    world = World()
    world.clients[2].remote_host = "10.0.0.2"
    world.clients[2].drop()
    [(ports, _)] = world.probes
    assert ports == []


def test_sessions_are_extended_if_this_process_was_stopped() -> None:
    world = World()
    world.loop.now_ms += 60_000  # no timer ran
    world.loop.advance(1_200)
    assert world.fenced == []
    world.loop.advance(20_000)
    assert world.fenced == [2, 3]


@pytest.mark.parametrize(("interval_ms", "leader"), [(5_000, 2), (None, 3)])
def test_leadership_returns_to_the_preferred_replica_if_the_setting_allows_it(
    interval_ms: int | None, leader: int
) -> None:
    world = World(balance_interval_ms=interval_ms)
    world.metadata.submit(lambda c: c.fence_broker(2)).result()
    assert world.cluster.partition.leader == 3
    world.beat(2)
    assert alter(world.cluster, (3, 1, 2), sender=3).error_code == 0
    for _ in range(6):
        world.beat(2, 3)
        world.loop.advance(1_000)
    assert world.cluster.partition.leader == leader


@pytest.mark.parametrize(("allowed", "leader"), [("true", 2), ("false", NO_LEADER)])
def test_unclean_leader_is_elected_only_where_the_topic_allows_it(allowed: str, leader: int) -> None:
    world = World(unclean_interval_ms=5_000)
    for broker_id in (2, 3, 1):
        world.metadata.submit(lambda c, i=broker_id: c.fence_broker(i)).result()  # type: ignore[misc]
    world.beat(2)
    assert (world.cluster.partition.leader, world.cluster.partition.isr) == (NO_LEADER, ())
    config = ConfigRecord(TOPIC, "t", "unclean.leader.election.enable", allowed)
    world.controller.replay([config], world.controller.image.offset + 1, 1)
    for _ in range(6):
        world.beat(2)
        world.loop.advance(1_000)
    assert world.cluster.partition.leader == leader


def test_previous_process_is_replaced_before_its_session_ends_only_if_its_connection_closed() -> None:
    world = World()
    cluster = world.cluster
    cluster.now_ms = world.loop.monotonic_ms()
    with pytest.raises(KafkaError) as error:
        cluster.start(2, incarnation=2)
    assert error.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.clients[2].drop()
    foreign = registration(2, None, 2)
    foreign.log_dirs = [b"x" * 16]
    with pytest.raises(KafkaError):
        cluster.send(foreign)
    assert cluster.start(2, incarnation=2) > 0


# -- records without a change ----------------------------------------------------------------------------------------


def test_empty_record_is_written_at_each_idle_interval() -> None:
    world = World(idle_interval_ms=500)
    before = world.controller.image
    world.loop.advance(2_000)
    after = world.controller.image
    assert after.offset == before.offset + 4
    assert (after.brokers, after.topics_by_id) == (before.brokers, before.topics_by_id)


def test_idle_interval_of_zero_writes_nothing() -> None:
    world = World(idle_interval_ms=0)
    offset = world.controller.image.offset
    world.loop.advance(8_000)
    assert world.controller.image.offset == offset
