"""Listening sockets, bound before the broker announces its address, so that port 0 is replaced by a real port."""

import errno
import select
import socket

from ottla.config import BrokerConfig, Listener


class ListenError(OSError):
    """A listener whose address cannot be bound: `listener`, with the reason in `errno`."""

    def __init__(self, listener: Listener, error: OSError) -> None:
        super().__init__(error.errno, f"cannot listen on {listener}: {error.strerror or error}")
        self.listener = listener


def bind(listener: Listener, config: BrokerConfig) -> list[socket.socket]:
    """Return bound sockets, one for each address of the host, all with the same port. Raises ListenError."""
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(listener):
            port = sockets[0].getsockname()[1] if sockets else listener.port
            sockets.append(_bound(family, address, port, config))
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise ListenError(listener, error) from error
    return sockets


def is_loopback(sock: socket.socket) -> bool:
    """Whether a bound socket can be reached only from this machine."""
    host = str(sock.getsockname()[0])
    return host == "::1" or host.startswith("127.")


def _addresses(listener: Listener) -> list[tuple[socket.AddressFamily, str]]:
    if not listener.host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104  # every interface was requested
    # As bytes, because text would import the codec of international names, which takes 2 ms.
    host = listener.host.encode() if listener.host.isascii() else listener.host
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as error:
        raise OSError(errno.EINVAL, "the host is not a valid international name") from error
    addresses = [(family, str(address[0])) for family, _, _, _, address in found]
    # IPv4 first, because a client that supports only one of the families supports IPv4.
    return sorted(dict.fromkeys(addresses), key=lambda entry: entry[0] != socket.AF_INET)


def _bound(family: socket.AddressFamily, address: str, port: int, config: BrokerConfig) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
        # A fixed size turns off the kernel's own tuning, so Kafka's defaults of 100 KiB are not applied.
        for name, option in (
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ):
            if name in config.static and config.int(name) > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, config.int(name))
        sock.bind((address, port))
        # Bound sockets may share a port until they listen: only `listen` shows that the port is free.
        sock.listen(1)
    except OSError:
        sock.close()
        raise
    return sock


def is_half_closed(descriptor: int) -> bool:
    """Whether the peer of a socket sends nothing more, even if received bytes are not read yet. Only Linux knows."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))
