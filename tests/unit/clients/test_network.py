"""Connections to several brokers: choice of broker, backoff, shared connections; and the driver thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, Self

import pytest

from ottla.clients import network, reachability
from ottla.clients.driver import Driver
from ottla.clients.errors import BrokerUnavailable, ClientError, Closed, ConnectionLost, RequestTimedOut, UnknownMember
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.options import COMMON_OPTIONS, read_options
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests import deadlines

from .fake_broker import Answer, FakeBroker


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def cluster(*addresses: str, **settings: object) -> Cluster:
    given: dict[str, object] = {"bootstrap.servers": list(addresses), "reconnect.backoff.ms": 20, **settings}
    return Cluster(read_network_settings(read_options(COMMON_OPTIONS, given)))


class Pair:
    """Two brokers whose metadata lists both. Other requests get the next of `answers`."""

    def __init__(self) -> None:
        self.one, self.two = FakeBroker(self._answer), FakeBroker(self._answer)
        self.answers: list[Answer] = []
        self.refreshes = 0
        self.listed = [(1, self.one), (2, self.two)]

    def _answer(self, _: RequestHeader, request: Message) -> Answer:
        if isinstance(request, MetadataRequest):
            self.refreshes += 1
            rows = [MetadataResponseBroker(i, "127.0.0.1", b.port) for i, b in self.listed]
            return MetadataResponse(brokers=rows, cluster_id="c", controller_id=2)
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(request.generation_id)
        return self.answers.pop(0) if self.answers else None

    async def __aenter__(self) -> Self:
        await self.one.start()
        await self.two.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.one.stop()
        await self.two.stop()


def test_one_live_address_of_several_is_enough() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster("127.0.0.1:1", pair.one.address, "127.0.0.1:2")
            await ours.start()
            assert {n: node.port for n, node in ours.view.nodes.items()} == {1: pair.one.port, 2: pair.two.port}
            assert (ours.view.cluster_id, ours.view.controller_id) == ("c", 2)
            await ours.close()

    run(story())


def test_callers_share_one_connection_per_purpose() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address)
            await ours.start()
            connections = await asyncio.gather(*(ours.connection(2) for _ in range(10)))
            assert len(set(map(id, connections))) == 1
            assert pair.two.connections == 1
            assert ours.connected(2) is connections[0]
            other = await ours.connection(2, purpose="coordinator")
            assert other is not connections[0]
            assert pair.two.connections == 2
            await ours.close()

    run(story())


def test_concurrent_refreshes_share_one_request() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address)
            await ours.start()
            await asyncio.gather(*(ours.refresh(["t"]) for _ in range(10)))
            assert pair.refreshes == 2
            await ours.close()

    run(story())


def test_unreachable_broker_is_retried_with_backoff_until_it_returns() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address, pair.two.address)
            await ours.start()
            await ours.send(2, HeartbeatRequest("g", 1, "m"))
            await pair.two.stop()
            attempts = 0
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                with pytest.raises((BrokerUnavailable, ConnectionLost)):
                    await ours.send(2, HeartbeatRequest("g", 1, "m"))
                attempts += 1
            assert 2 <= attempts <= 12
            await pair.two.start()
            assert (await ours.send(2, HeartbeatRequest("g", 5, "m"))).throttle_time_ms == 5
            await ours.close()

    run(story())


def test_request_to_a_broker_that_hangs_fails_when_the_metadata_no_longer_has_it() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address, **{"request.timeout.ms": 15_000})
            await ours.start()
            hung = asyncio.create_task(ours.send(2, FindCoordinatorRequest("g")))
            while not any(isinstance(request, FindCoordinatorRequest) for _, request in pair.two.seen):
                await asyncio.sleep(0.01)
            pair.listed = [(1, pair.one)]
            await ours.refresh()
            with pytest.raises(ConnectionLost):
                await hung
            await ours.close()

    run(story())


def test_broker_that_hangs_is_left_when_the_others_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "SILENCE_S", 0.05)

    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address, pair.two.address, **{"request.timeout.ms": 15_000})
            await ours.start()
            hung = asyncio.create_task(ours.send(2, FindCoordinatorRequest("g")))
            await asyncio.sleep(0.3)
            assert not hung.done(), "it is in the metadata"
            pair.listed = [(1, pair.one)]
            asked = len(pair.two.seen)
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(hung, 5)
            assert len(pair.two.seen) == asked, "the broker that does not answer was asked for the metadata"
            await ours.close()

    run(story())


def test_broker_that_returns_at_another_address_is_reached_there() -> None:
    async def story() -> None:
        async with Pair() as pair, FakeBroker(pair._answer) as moved:
            ours = cluster(pair.one.address)
            await ours.start()
            await ours.send(2, HeartbeatRequest("g", 1, "m"))
            pair.listed = [(1, pair.one), (2, moved)]
            await ours.refresh()
            await ours.send(2, HeartbeatRequest("g", 1, "m"))
            assert [type(request) for _, request in moved.seen] == [HeartbeatRequest]
            await ours.close()

    run(story())


def test_all_brokers_down_names_each_address() -> None:
    async def story() -> None:
        ours = cluster("127.0.0.1:1", "127.0.0.1:2")
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1: .*refused.*; 127\.0\.0\.1:2") as caught:
            await ours.start(0.4)
        assert caught.value.retriable
        assert 0.1 < time.monotonic() - started < 8, "a connection may take 10 s"
        await ours.close()

    run(story())


def test_deadline_that_leaves_no_time_for_an_attempt_reports_the_last_one() -> None:
    async def story() -> None:
        lonely = cluster("127.0.0.1:1")
        refused = "No broker can be reached: 127.0.0.1:1: connection refused, nothing listens there"
        for limit_s in (5.0, 0.0, 0.0):
            with pytest.raises(BrokerUnavailable) as caught:
                await lonely.any_connection(timeout_s=limit_s)
            assert str(caught.value) == refused
        # A call that joins the refresh of another call, and has an earlier deadline.
        first = asyncio.create_task(lonely.refresh(timeout_s=5.0))
        await asyncio.sleep(0)
        with pytest.raises(BrokerUnavailable) as caught:
            await lonely.refresh(timeout_s=0.0)
        assert str(caught.value) == refused
        await lonely.close()
        await asyncio.wait([first])
        assert isinstance(first.exception(), Closed)

    run(story())


def test_unreachable_cluster_is_logged_once_per_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reachability, "REPORT_AFTER_S", 0.2)

    async def story() -> None:
        async with Pair() as pair:
            await pair.one.stop()
            await pair.two.stop()  # a broker that the view will contain
            ours = cluster(pair.one.address)
            for outage in (1, 2):
                with pytest.raises(BrokerUnavailable):
                    await ours.refresh((), timeout_s=0.8)
                (*_, message) = logged = [record.getMessage() for record in caplog.records]
                assert len(logged) == outage
                assert "still trying: " in message
                assert f"{pair.one.address}: connection refused" in message  # known brokers are tried in any order
                await pair.one.start()
                await ours.refresh((), timeout_s=5)
                await pair.one.stop()
            await ours.close()

    with caplog.at_level("WARNING", "ottla.clients.network"):
        run(story())


def test_address_that_is_not_kafka_is_not_retried() -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n", handshake=False) as web:
            ours = cluster(web.address)
            started = time.monotonic()
            with pytest.raises(BrokerUnavailable, match="web server") as caught:
                await ours.start(30)
            assert not caught.value.retriable
            assert time.monotonic() - started < 15, "retries would take 30 s"
            await ours.close()

    run(story())


def test_unresponsive_broker_leaves_time_for_the_next() -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: None, handshake=False) as silent, Pair() as pair:
            ours = cluster(silent.address, pair.one.address)
            await ours.start(2)
            assert set(ours.view.nodes) == {1, 2}
            await ours.close()

    run(story())


def test_coordinator_is_looked_up_until_it_exists_and_then_cached() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address)
            await ours.start()
            none = FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "", -1, 15)])
            there = FindCoordinatorResponse(coordinators=[Coordinator("g", 2, "127.0.0.1", pair.two.port, 0)])
            pair.answers = [none, there]
            assert await ours.coordinator("g") == 2
            assert await ours.coordinator("g") == 2
            assert pair.answers == []
            ours.forget_coordinator("g")
            pair.answers = [FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "", -1, 25, "no")])]
            with pytest.raises(UnknownMember, match="no"):
                await ours.coordinator("g")
            await ours.close()

    run(story())


def test_close_fails_waiting_requests() -> None:
    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address)
            await ours.start()
            waiting = asyncio.ensure_future(ours.send(1, FindCoordinatorRequest("g")))
            await asyncio.sleep(0.05)
            await ours.close()
            with pytest.raises(ClientError):
                await waiting
            with pytest.raises(Closed):
                await ours.send(1, HeartbeatRequest())
            with pytest.raises(Closed):
                await ours.refresh()

    run(story())


def test_close_that_is_cancelled_during_the_last_push_closes_the_connections() -> None:
    class LastPush:
        def __init__(self) -> None:
            self.begun = asyncio.Event()

        def connected(self, _: object) -> None: ...

        async def close(self) -> None:
            self.begun.set()
            await asyncio.Event().wait()

    async def story() -> None:
        async with Pair() as pair:
            ours = cluster(pair.one.address)
            pusher: Any = LastPush()
            ours.telemetry = pusher
            await ours.start()
            (connection,) = [each for _, each in ours.open_connections()]
            closing = asyncio.ensure_future(ours.close())
            await pusher.begun.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert connection.closed
            assert ours._silence_timer is not None
            assert ours._silence_timer.cancelled()
            with pytest.raises(Closed):
                await ours.refresh()

    run(story())


# -- the driver ------------------------------------------------------------------------------------------------


async def after(delay_s: float, result: object) -> object:
    await asyncio.sleep(delay_s)
    if isinstance(result, Exception):
        raise result
    return result


def test_driver_returns_results_and_raises_errors() -> None:
    driver = Driver()
    assert driver.run(after(0, 7)) == 7
    with pytest.raises(ValueError, match="mine"):
        driver.run(after(0, ValueError("mine")))
    with pytest.raises(TimeoutError, match="mine"):
        driver.run(after(0, TimeoutError("mine")), 5)
    with pytest.raises(RequestTimedOut, match=r"0\.05 s"):
        driver.run(after(30, None), 0.05)
    driver.close()
    driver.close()
    with pytest.raises(Closed):
        driver.run(after(0, 7))


def test_blocking_call_in_a_callback_is_an_error_not_a_deadlock() -> None:
    driver = Driver()
    caught: list[BaseException] = []
    done = threading.Event()

    def callback() -> None:
        try:
            driver.run(after(0, 7))
        except ClientError as error:
            caught.append(error)
        done.set()

    driver.call_soon(callback)
    assert done.wait(5)
    assert "callback" in str(caught[0])
    driver.close()


def test_closing_the_driver_wakes_waiting_callers() -> None:
    driver = Driver()
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            driver.run(after(60, None))
        except Closed as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    driver.close()
    thread.join(5)
    assert not thread.is_alive()
    assert len(caught) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_driver_in_a_forked_child_raises() -> None:
    driver = Driver()

    def run() -> int:
        try:
            driver.run(after(0, 7))
        except ClientError as error:
            return 42 if "fork" in str(error) else 43
        return 44

    assert deadlines.code_of_fork(run) == 42
    assert driver.run(after(0, 7)) == 7
    driver.close()


def test_idle_connection_is_closed_and_not_reused() -> None:
    async def story() -> None:
        async with Pair() as pair:
            client = cluster(pair.one.address, **{"connections.max.idle.ms": 100})
            await client.start()
            await client.send(1, HeartbeatRequest(generation_id=1))
            first = client.connected(1)
            assert first is not None
            await asyncio.sleep(0.15)
            assert client.connected(1) is None
            version = client.view.refresh_due_at_ms()
            await client.send(1, HeartbeatRequest(generation_id=2))
            second = client.connected(1)
            assert second is not None
            assert second is not first
            assert first.closed
            await asyncio.sleep(0.02)
            assert client.view.refresh_due_at_ms() == version, (
                "closing an idle connection must not cause a metadata refresh"
            )
            await client.close()

    run(story())
