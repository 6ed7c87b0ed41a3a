"""The way from a broker to the active controller, through elections and lost connections."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.controller_channel import ControllerChannel
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.network.errors import ConnectFailed, ConnectionClosed, UnsupportedRequest
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.unit.broker.harness import ManualLoop
from tests.unit.controller.support import Cluster

from .support import Channels, Quorum

ANSWER = BrokerHeartbeatResponse(error_code=0, is_caught_up=True, is_fenced=False)


class World:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.quorum = Quorum()
        self.channels = Channels()
        self.channel = ControllerChannel(self.quorum, self.loop, self.loop.call_later, self.channels)

    def send(self, timeout_s: float = 5.0) -> Completion[Any]:
        return self.channel.send(BrokerHeartbeatRequest(1, 7), timeout_s=timeout_s)


def error_of(completion: Completion[Any]) -> int:
    assert isinstance(completion.error, KafkaError)
    return completion.error.code


def test_active_controller_decides_its_own_requests_without_a_connection() -> None:
    world = World()
    cluster = Cluster(1)
    world.quorum.controller = cluster.controller
    world.quorum.elect(1)
    request = AllocateProducerIdsRequest(1, cluster.epochs[1])
    answer: AllocateProducerIdsResponse = world.channel.send(request, timeout_s=5).result()
    assert (answer.error_code, answer.producer_id_len) == (0, 1000)
    assert not world.channels.sent
    assert not world.loop.pending_timers


def test_errors_of_the_local_controller_are_responses() -> None:
    world = World()
    world.quorum.controller = Cluster(1).controller
    world.quorum.elect(1)
    answer = world.channel.send(AllocateProducerIdsRequest(1, 999), timeout_s=5).result()
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_request_goes_to_the_active_controller() -> None:
    world = World()
    world.quorum.elect(2)
    sent = world.send()
    assert world.channels.nodes == [2]
    world.channels.answer(ANSWER)
    assert sent.result() is ANSWER
    assert not world.loop.pending_timers


def test_request_of_a_client_goes_to_the_own_listener_after_this_node_was_elected() -> None:
    """Only the handlers of the listener know all requests that an Envelope may have."""
    world = World()
    sent = world.channel.send(EnvelopeRequest(), timeout_s=5.0)
    world.quorum.elect(1)
    assert world.channels.nodes == [1]
    answer = EnvelopeResponse()
    world.channels.answer(answer)
    assert sent.result() is answer


def test_request_waits_until_a_controller_is_known() -> None:
    world = World()
    sent = world.send()
    world.loop.advance(1_000)
    assert not sent.done
    world.quorum.elect(3)
    world.channels.answer(ANSWER)
    assert sent.result() is ANSWER


@pytest.mark.parametrize(
    "problem",
    [
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
        ConnectionClosed("the process ended"),
        ConnectFailed("refused"),
    ],
)
def test_request_is_repeated_after_a_pause(problem: object) -> None:
    world = World()
    world.quorum.elect(2)
    sent = world.send()
    world.channels.answer(problem)
    assert not world.channels.sent
    world.loop.advance(50)
    assert world.channels.nodes == [2]
    world.channels.answer(ANSWER)
    assert sent.result() is ANSWER


def test_request_goes_to_the_new_controller_at_once_and_the_late_answer_of_the_old_one_is_ignored() -> None:
    world = World()
    world.quorum.elect(2)
    sent = world.send()
    world.quorum.elect(3)
    assert world.channels.nodes == [2, 3]
    world.channels.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert not sent.done
    world.channels.answer(ANSWER)
    assert sent.result() is ANSWER
    assert not world.loop.pending_timers


def test_node_that_lost_its_leadership_asks_the_new_controller() -> None:
    world = World()
    world.quorum.elect(1)  # without a controller: the operation fails with NOT_CONTROLLER
    sent = world.send()
    assert world.quorum.operations == 1
    world.quorum.elect(2)
    world.channels.answer(ANSWER)
    assert sent.result() is ANSWER


def test_request_fails_at_its_deadline_and_is_not_repeated_after_it() -> None:
    world = World()
    world.quorum.elect(2)
    sent = world.send(timeout_s=1.0)
    world.channels.answer(ConnectFailed("host2:9093 refused the connection"))
    for _ in range(100):
        world.loop.advance(50)
        while world.channels.sent:
            world.channels.answer(ConnectFailed("host2:9093 refused the connection"))
    assert error_of(sent) == ErrorCode.REQUEST_TIMED_OUT
    assert "refused the connection" in str(sent.error)
    assert world.loop.pending_timers == 0
    world.quorum.elect(3)
    assert not world.channels.sent


def test_unsupported_request_is_not_repeated() -> None:
    world = World()
    world.quorum.elect(2)
    sent = world.send()
    world.channels.answer(UnsupportedRequest("host2:9093 supports no BrokerHeartbeat"))
    assert error_of(sent) == ErrorCode.UNSUPPORTED_VERSION


def test_close_fails_all_requests() -> None:
    world = World()
    world.quorum.elect(2)
    waiting = world.send()
    world.channel.close()
    assert error_of(waiting) == error_of(world.send()) == ErrorCode.BROKER_NOT_AVAILABLE
    assert world.channels.closed
    assert not world.loop.pending_timers
