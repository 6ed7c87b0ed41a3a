"""The kernel closes the connections of brokers before the clients' if the process is killed."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable

import pytest

from ottla.network.closing_order import MOST_CONNECTIONS, ClosedFirst

CONNECTIONS = 8


class Connection:
    def __init__(self, sock: socket.socket | None) -> None:
        self.sock = sock
        self.callbacks: list[Callable[[], None]] = []

    @property
    def descriptor(self) -> int | None:
        return None if self.sock is None else self.sock.fileno()

    def on_close(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback()
        if self.sock is not None:
            self.sock.close()


def closing_order(chosen: set[int]) -> list[int]:
    """Kill a process with several connections; returns the order in which they are closed."""
    pairs = [socket.socketpair() for _ in range(CONNECTIONS)]
    child = os.fork()
    if not child:
        signal.alarm(20)
        for ours, _ in pairs:
            ours.close()
        closed_first = ClosedFirst()
        for number in chosen:
            closed_first.add(Connection(pairs[number][1]))
        pairs[0][1].send(b"ready")
        signal.pause()
    poll = select.epoll()
    numbers = {}
    for number, (ours, theirs) in enumerate(pairs):
        theirs.close()
        numbers[ours.fileno()] = number
    assert pairs[0][0].recv(5) == b"ready"
    for descriptor in numbers:
        poll.register(descriptor, select.EPOLLRDHUP)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = [numbers[descriptor] for descriptor, _ in poll.poll(5)]
    for ours, _ in pairs:
        ours.close()
    poll.close()
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the order of Linux")
def test_connections_of_brokers_are_closed_before_connections_of_clients() -> None:
    order = closing_order({1, 4})
    assert set(order[:2]) == {1, 4}
    assert sorted(order) == list(range(CONNECTIONS))


def test_second_descriptor_is_closed_with_the_connection() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(theirs)
    closed_first = ClosedFirst()
    closed_first.add(connection)
    connection.close()
    with ours:
        assert ours.recv(1) == b"", "the connection is closed"
    closed_first.add(Connection(None))


def test_number_of_connections_is_limited() -> None:
    with socket.socket() as sock:
        closed_first = ClosedFirst()
        connections = [Connection(sock) for _ in range(MOST_CONNECTIONS + 1)]
        for connection in connections:
            closed_first.add(connection)
        assert not connections[-1].callbacks
        connections[0].callbacks[0]()
        closed_first.add(connections[-1])
        assert connections[-1].callbacks
        for connection in connections[1:]:
            connection.callbacks[0]()


def test_without_a_free_descriptor_nothing_changes() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as sock:
        connection = Connection(sock)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, before[1]))
        taken = []
        try:
            while True:
                try:
                    taken.append(os.dup(sock.fileno()))
                except OSError:
                    break
            ClosedFirst().add(connection)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for descriptor in taken:
                os.close(descriptor)
        assert not connection.callbacks
