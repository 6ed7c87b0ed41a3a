"""Connections that are muted because their client is above a quota. KIP-219."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.common.completion import Completion
from ottla.network.connection import Connection, Frames, MutingResponse, Pause
from ottla.network.frame_reader import READ_AHEAD_BYTES
from ottla.network.limits import Limits

from .test_server import Run, framed, run, serving, until

__all__ = ["run"]


class Muting:
    """Answers each frame with itself; mutes the connection after `slow`, for `pause_s`."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.handled: list[bytes] = []

    def __call__(self, connection: Connection, frame: memoryview) -> Frames | Completion[Frames]:
        payload = bytes(frame)
        self.handled.append(payload)
        if payload != b"slow":
            return [framed(payload)]
        response: Completion[Frames] = Completion()
        muting = MutingResponse([framed(payload)], self.pause_s)
        asyncio.get_running_loop().call_soon(response.complete, muting)
        return response


def test_muted_client_gets_its_response_at_once_and_the_next_one_after_the_pause(run: Run) -> None:
    muting = Muting(0.2)

    async def story() -> None:
        async with serving(muting) as broker:
            client, other = await broker.connect(), await broker.connect()
            await client.send(b"".join(map(framed, [b"first", b"slow", b"next"])))
            assert [await client.receive(), await client.receive()] == [b"first", b"slow"]
            muted_s = asyncio.get_running_loop().time()
            await client.send(framed(b"later"))
            await other.send(framed(b"other"))
            assert await other.receive() == b"other"
            assert muting.handled == [b"first", b"slow", b"other"]
            assert [await client.receive(), await client.receive()] == [b"next", b"later"]
            assert asyncio.get_running_loop().time() - muted_s >= 0.1

    run(story())


def test_muted_connection_is_not_idle(run: Run) -> None:
    async def story() -> None:
        async with serving(Muting(0.6), Limits(max_idle_ms=200)) as broker:
            client = await broker.connect()
            await client.send(framed(b"slow") + framed(b"next"))
            assert [await client.receive(), await client.receive()] == [b"slow", b"next"]
            assert await client.closed()

    run(story())


def test_lost_client_of_a_muted_connection_is_noticed_and_its_pause_ends(run: Run) -> None:
    """With many unread bytes as well, when the loop does not read from the socket."""

    async def story() -> None:
        async with serving(Muting(300), Limits(max_idle_ms=1_000)) as broker:
            for unread_bytes in (0, READ_AHEAD_BYTES + 20_000):
                client = await broker.connect()
                await client.send(framed(b"slow"))
                assert await client.receive() == b"slow"
                (connection,) = broker.server.connections
                pause = connection._pending
                assert isinstance(pause, Pause)
                if unread_bytes:
                    await client.send(framed(b"x"))
                    await until(partial(getattr, connection._reader, "has_bytes"))
                    await client.send(framed(b"x" * unread_bytes))
                    await until(partial(getattr, connection._reader, "is_paused"))
                    assert broker.server.connections.memory.used_bytes <= 2 * READ_AHEAD_BYTES
                # An orderly close of TLS would wait for the other side.
                client.writer.transport.abort()
                await until(lambda: not broker.server.connections)
                assert pause._timer.cancelled()
                assert broker.server.connections.memory.used_bytes == 0

    run(story())


def test_stop_does_not_wait_for_muted_connections(run: Run) -> None:
    muting = Muting(300)

    async def story() -> None:
        async with serving(muting) as broker:
            client = await broker.connect()
            await client.send(framed(b"slow") + framed(b"next"))
            assert await client.receive() == b"slow"
            await asyncio.wait_for(broker.server.close(20.0), 2)
            assert await client.closed()
            assert muting.handled == [b"slow"]

    run(story())
