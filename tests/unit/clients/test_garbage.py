"""Unused connections and clients are freed at once: cycles of references would keep them until a collection.

A full collection waits for many new objects. Until then each lost connection would take its buffer of 64 KiB, and each
failed attempt the frames of its traceback, so that the memory of a client would grow for a long time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla.clients.cluster import Backoff
from ottla.clients.consumer.queries import retry
from ottla.clients.errors import ClientError, Closed, ConnectionLost
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.options import COMMON_OPTIONS, read_options
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from tests.garbage import garbage_of

from .fake_broker import Answer, FakeBroker


def garbage(story: Callable[[], Coroutine[Any, Any, None]]) -> list[str]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return garbage_of(
            lambda: runner.run(asyncio.wait_for(story(), 20)), "ottla.clients", "ottla.network", __name__
        )  # fmt: skip


def cluster(addresses: str) -> Cluster:
    given = {"bootstrap.servers": addresses, "reconnect.backoff.ms": 1, "retry.backoff.ms": 1}
    return Cluster(read_network_settings(read_options(COMMON_OPTIONS, given)))


def test_refused_connections_leave_no_garbage() -> None:
    async def story() -> None:
        ours = cluster("127.0.0.1:1,127.0.0.1:2")
        for timeout_s in (0.0, 0.02):
            try:
                await ours.start(timeout_s)
            except ClientError as error:
                assert error.retriable  # noqa: PT017 - pytest.raises would refer to the traceback
        await ours.close()

    assert garbage(story) == []


def test_lost_and_closed_connections_leave_no_garbage() -> None:
    def answer(_: RequestHeader, request: Message) -> Answer:
        assert isinstance(request, MetadataRequest)
        rows = [MetadataResponseBroker(1, "127.0.0.1", port) for port in ports]
        return MetadataResponse(brokers=rows, cluster_id="c", controller_id=1)

    ports: list[int] = []

    async def story() -> None:
        broker = FakeBroker(answer)
        await broker.start()
        ports[:] = [broker.port]
        ours = cluster(broker.address)
        await ours.start(5.0)
        connection = await ours.connection(1)
        await broker.stop()
        await connection.wait_lost(5.0)
        del connection
        await broker.start()
        await ours.connection(1)
        await ours.close()
        await broker.stop()

    assert garbage(story) == []


def test_repeated_query_leaves_no_garbage() -> None:
    async def story() -> None:
        failures = [ConnectionLost("one"), ConnectionLost("two")]

        async def attempt() -> None:
            if failures:
                raise failures.pop()

        await retry(attempt, Backoff(1, 1), 5.0)

    assert garbage(story) == []


def test_closed_client_says_so_and_not_that_a_setting_is_missing() -> None:
    async def story() -> None:
        ours = cluster("127.0.0.1:1")
        with pytest.raises(ClientError, match=r"enable\.metrics\.push is false"):
            await ours.client_instance_id(1.0)
        await ours.close()
        with pytest.raises(Closed):
            await ours.client_instance_id(1.0)

    asyncio.run(story())
