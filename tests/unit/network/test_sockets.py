"""Listening sockets, and the limits from the settings."""

import socket

import pytest

from ottla.config import BrokerConfig, Listener
from ottla.network.buffers import BufferPool
from ottla.network.limits import DEFAULT_BUFFERED_BYTES, Limits
from ottla.network.sockets import ListenError, bind


def close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "", "0.0.0.0"])
def test_port_0_is_replaced_by_a_real_port_before_accepting(host: str) -> None:
    sockets = bind(Listener("PLAINTEXT", host, 0), BrokerConfig({}))
    ports = {sock.getsockname()[1] for sock in sockets}
    try:
        assert len(ports) == 1
        with socket.create_connection(("127.0.0.1", ports.pop()), timeout=5):
            pass
    finally:
        close_all(sockets)


def test_address_in_use_is_an_error_at_once() -> None:
    first = bind(Listener("PLAINTEXT", "127.0.0.1", 0), BrokerConfig({}))
    listener = Listener("SECOND", "127.0.0.1", first[0].getsockname()[1])
    try:
        with pytest.raises(ListenError, match="SECOND://127") as caught:
            bind(listener, BrokerConfig({}))
        assert caught.value.listener == listener
    finally:
        close_all(first)


def test_kernel_buffers_are_set_only_where_they_are_configured() -> None:
    def received(config: BrokerConfig) -> int:
        (sock,) = bind(Listener("PLAINTEXT", "127.0.0.1", 0), config)
        with sock:
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    # Linux doubles the requested size.
    assert received(BrokerConfig({"socket.receive.buffer.bytes": "30000"})) == 60000
    assert received(BrokerConfig({})) == received(BrokerConfig({"socket.receive.buffer.bytes": "-1"})) != 60000


def test_limits_are_read_from_the_settings() -> None:
    limits = Limits.from_config(
        BrokerConfig(
            {
                "max.connections": "1",
                "max.connections.per.ip": "2",
                "max.connections.per.ip.overrides": "127.0.0.1:3, ::1:4",
                "max.connection.creation.rate": "5",
                "socket.request.max.bytes": "6000000",
                "connections.max.idle.ms": "107",
                "queued.max.request.bytes": "6000008",
                "socket.listen.backlog.size": "9",
            }
        )
    )
    assert limits == Limits(1, 2, {"127.0.0.1": 3, "::1": 4}, 5, 6000000, 107, 6000008, 107, 9)
    several = BrokerConfig({"listeners": "PLAINTEXT://:1,SSL://:2", "security.inter.broker.protocol": "SSL"})
    assert Limits.from_config(several).protected_listener == "SSL"
    assert Limits.from_config(BrokerConfig({})) == Limits(max_buffered_bytes=DEFAULT_BUFFERED_BYTES)


def test_pool_reuses_large_buffers_and_retains_a_bounded_number() -> None:
    pool = BufferPool()
    buffer = pool.take(100_000)
    pool.give_back(buffer)
    assert pool.take(120_000) is buffer
    many = [pool.take(2 << 20) for _ in range(20)]
    for each in many:
        pool.give_back(each)
    again = [pool.take(2 << 20) for _ in range(20)]
    assert sum(any(each is old for old in many) for each in again) == 8
