"""Channels between nodes: opened when needed, reopened with a backoff, and lost connections are reported."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla.common.completion import Completion
from ottla.network.errors import ConnectFailed, ConnectionClosed, NoAnswer, UnsupportedRequest
from ottla.network.node_channel import MOST_WAITING, ChannelOptions, NodeChannel, NodeChannels
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.vote import VoteRequest
from tests.garbage import garbage_of
from tests.unit.clients.fake_broker import Answer, FakeBroker, api_versions

TIMEOUT_S = 5.0
HOST = "127.0.0.1"
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(story: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(story, 20))

    return go


def echo(_: RequestHeader, request: Message) -> Answer:
    assert isinstance(request, HeartbeatRequest)
    return HeartbeatResponse(request.generation_id)


def silent(_: RequestHeader, __: Message) -> Answer:
    return None


def free_port() -> int:
    with socket.create_server((HOST, 0)) as sock:
        return int(sock.getsockname()[1])


def beat(number: int = 1) -> HeartbeatRequest:
    return HeartbeatRequest("g", number, "m")


async def outcome(completion: Completion[Message]) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        while not completion.done:
            await asyncio.sleep(0.002)
    return completion.result()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.002)


def test_requests_before_the_connection_is_open_are_sent_in_order(run: Run) -> None:
    async def story() -> None:
        async with FakeBroker(echo) as node:
            channel = NodeChannel(HOST, node.port, client_id="raft-client-1")
            answers = [channel.send(beat(i), timeout_s=TIMEOUT_S) for i in range(5)]
            assert [(await outcome(each)).throttle_time_ms for each in answers] == list(range(5))
            assert (await outcome(channel.send(beat(9), timeout_s=TIMEOUT_S))).throttle_time_ms == 9
            assert node.connections == 1
            assert node.seen[0][0].client_id == "raft-client-1"
            channel.close()
            await channel.wait_closed(1.0)

    run(story())


def test_closed_connection_is_reported_and_the_next_request_opens_another(run: Run) -> None:
    async def story() -> None:
        lost: list[int] = []
        async with FakeBroker(silent) as node:
            channels = NodeChannels("raft-client-1", lost.append)
            channel = channels.to(7, HOST, node.port)
            answer = channel.send(beat(), timeout_s=TIMEOUT_S)
            await until(lambda: node.seen)
            await node.stop()
            with pytest.raises(ConnectionClosed):
                await outcome(answer)
            assert lost == [7]
            node._handler = echo
            await node.start()
            assert (await outcome(channel.send(beat(3), timeout_s=TIMEOUT_S))).throttle_time_ms == 3
            assert lost == [7]
            await channels.aclose(1.0)
        assert lost == [7]

    run(story())


def test_refused_connection_is_reported_and_fails_requests_until_the_backoff_has_passed(run: Run) -> None:
    async def story() -> None:
        lost: list[int] = []
        port = free_port()
        options = ChannelOptions(backoff_s=0.2, backoff_max_s=0.2)
        channel = NodeChannel(HOST, port, client_id="me", on_lost=lambda: lost.append(1), options=options)
        with pytest.raises(ConnectFailed):
            await outcome(channel.send(beat(), timeout_s=TIMEOUT_S))
        assert lost == [1]
        node = FakeBroker(echo)
        node.port = port
        await node.start()
        failed_at_once = channel.send(beat(), timeout_s=TIMEOUT_S)
        assert isinstance(failed_at_once.error, ConnectFailed)
        assert node.connections == 0
        await asyncio.sleep(0.25)
        assert (await outcome(channel.send(beat(4), timeout_s=TIMEOUT_S))).throttle_time_ms == 4
        channel.close()
        await node.stop()

    run(story())


def test_timeout_closes_the_connection_and_is_not_reported_as_a_lost_node(run: Run) -> None:
    async def story() -> None:
        lost: list[int] = []
        async with FakeBroker(silent) as node:
            channel = NodeChannel(HOST, node.port, client_id="me", on_lost=lambda: lost.append(1))
            first = channel.send(beat(), timeout_s=0.05)
            second = channel.send(beat(), timeout_s=TIMEOUT_S)
            with pytest.raises(NoAnswer):
                await outcome(first)
            with pytest.raises(ConnectionClosed):
                await outcome(second)
            assert not channel.is_connected
            assert lost == []
            channel.close()

    run(story())


def test_request_fails_after_its_timeout_while_the_connection_is_opened(run: Run) -> None:
    async def story() -> None:
        async with FakeBroker(silent, handshake=False) as node:
            channel = NodeChannel(HOST, node.port, client_id="me")
            with pytest.raises(ConnectFailed, match=r"within 0\.05 s: Heartbeat was not sent"):
                await outcome(channel.send(beat(), timeout_s=0.05))
            channel.close()
            await channel.wait_closed(1.0)

    run(story())


def test_version_that_the_other_node_lacks_is_an_error_of_that_request_only(run: Run) -> None:
    def old(header: RequestHeader, request: Message) -> Answer:
        return api_versions(highest=1) if header.api_key == 18 else echo(header, request)

    async def story() -> None:
        async with FakeBroker(old, handshake=False) as node:
            channel = NodeChannel(HOST, node.port, client_id="me")
            with pytest.raises(UnsupportedRequest):
                await outcome(channel.send(VoteRequest(), timeout_s=TIMEOUT_S, least_version=2))
            assert (await outcome(channel.send(beat(2), timeout_s=TIMEOUT_S))).throttle_time_ms == 2
            channel.close()

    run(story())


def test_waiting_requests_are_limited_and_a_closed_channel_fails_them(run: Run) -> None:
    async def story() -> None:
        async with FakeBroker(silent, handshake=False) as node:
            channel = NodeChannel(HOST, node.port, client_id="me")
            waiting = [channel.send(beat(), timeout_s=TIMEOUT_S) for _ in range(MOST_WAITING)]
            assert isinstance(channel.send(beat(), timeout_s=TIMEOUT_S).error, ConnectFailed)
            channel.close()
            assert all(isinstance(each.error, ConnectionClosed) for each in waiting)
            assert isinstance(channel.send(beat(), timeout_s=TIMEOUT_S).error, ConnectionClosed)
            await channel.wait_closed(1.0)

    run(story())


def test_pool_replaces_the_channel_of_a_node_that_moved(run: Run) -> None:
    async def story() -> None:
        async with FakeBroker(echo) as old, FakeBroker(echo) as new:
            channels = NodeChannels("me")
            first = channels.to(1, HOST, old.port)
            assert channels.to(1, HOST, old.port) is first
            await outcome(first.send(beat(), timeout_s=TIMEOUT_S))
            second = channels.to(1, HOST, new.port)
            assert second is not first
            assert not first.is_connected
            assert (await outcome(second.send(beat(5), timeout_s=TIMEOUT_S))).throttle_time_ms == 5
            assert len(channels) == 1
            channels.retain([])
            assert len(channels) == 0
            await second.wait_closed(1.0)

    run(story())


def test_refused_requests_leave_no_garbage() -> None:
    """A broker whose neighbour is away sends hundreds of requests in vain in each minute."""

    def take(done: Completion[Message]) -> None:
        try:
            done.result()
        except ConnectFailed:
            return

    async def story() -> None:
        channel = NodeChannel(HOST, 1, client_id="raft-client-1", options=ChannelOptions(backoff_s=0.2))
        answer = channel.send(beat(), timeout_s=TIMEOUT_S)
        answer.on_done(take)
        await until(lambda: answer.done)
        for _ in range(3):  # during the backoff
            channel.send(beat(), timeout_s=TIMEOUT_S).on_done(take)
        channel.close()

    def work() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(story(), 20))

    assert garbage_of(work, "ottla.", __name__) == []
