"""Requests between workers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.connect.errors import RetriableError
from ottla.connect.peers import Peers


def test_worker_that_does_not_listen_is_a_retriable_error_with_a_reason() -> None:
    async def run(url: str) -> None:
        peers = Peers(5.0)
        try:
            await peers.request("GET", url, b"", {})
        finally:
            await peers.close()

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/", "http://[::bad/", "ftp://127.0.0.1/"):
        with pytest.raises(RetriableError, match=r"\w"):
            asyncio.run(run(url))


def test_client_that_sent_nothing_closes() -> None:
    asyncio.run(Peers(5.0).close())
