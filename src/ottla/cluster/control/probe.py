"""Finds out whether the process of a broker has evidently ended: its listeners refuse connections.

A listener that accepts a connection and closes it at once is probed again: the process may be ending. If it goes on, a
TCP forwarder or a load balancer may listen there for a broker that has ended, or a live broker may be at its limit of
connections. It proves nothing alone, and does not refute another listener that refuses connections. Everything else,
such as a timeout, an unreachable host or a connection that stays open, proves nothing: the network may be cut, or the
process stopped.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any

from ottla.common.completion import Completion
from ottla.metadata.image import Endpoint

CONNECT_TIMEOUT_S = 1.0
# How long an accepted connection must stay open to prove that a process, or a proxy, listens.
STAYS_OPEN_S = 0.05
ATTEMPTS = 5
PAUSE_S = 0.02
MOST_ENDPOINTS = 4
# Errors of an address whose protocol this machine does not have, such as ::1 without IPv6.
_UNUSABLE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Prober:
    """Probes the listeners of brokers on the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, endpoints: Sequence[Endpoint]) -> Completion[bool]:
        """Complete with whether the endpoints prove that no process listens. Takes seconds at most."""
        completion: Completion[bool] = Completion()
        task = asyncio.get_running_loop().create_task(_probe(endpoints, completion), name="probe a broker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return completion

    def close(self) -> None:
        """Cancel all probes; their completions stay open."""
        for task in self._tasks:
            task.cancel()


async def _probe(endpoints: Sequence[Endpoint], completion: Completion[bool]) -> None:
    is_refused = False
    for endpoint in endpoints[:MOST_ENDPOINTS]:
        answers = await _answers_of(endpoint)
        if not answers or not answers <= {errno.ECONNREFUSED, errno.ECONNRESET}:
            completion.complete(False)
            return
        is_refused = is_refused or errno.ECONNRESET not in answers
    completion.complete(is_refused)


async def _answers_of(endpoint: Endpoint) -> set[int]:
    """The answers of the addresses of the endpoint, apart from those that this machine cannot use; empty if unknown."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return set()
    answers = [await _answer_of(family, address) for family, _, _, _, address in found[:MOST_ENDPOINTS]]
    return {*answers} - {*_UNUSABLE}


async def _answer_of(family: int, address: tuple[Any, ...]) -> int:
    """Return the error of a connection to the address, or 0 if it stays open, or without an answer.

    ECONNRESET means that it is accepted and closed, again and again.
    """
    loop = asyncio.get_running_loop()
    for _ in range(ATTEMPTS):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await loop.sock_connect(sock, address)
                async with asyncio.timeout(STAYS_OPEN_S):
                    received = await loop.sock_recv(sock, 1)
        except TimeoutError:
            return 0
        except ConnectionResetError:
            pass  # The process may be ending.
        except OSError as error:
            return error.errno or 0
        else:
            if received:
                return 0
        await asyncio.sleep(PAUSE_S)
    return errno.ECONNRESET
