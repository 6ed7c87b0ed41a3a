"""Addresses: `NAME://host:port`, the syntax of `listeners` and `advertised.listeners`."""

import re
from enum import IntEnum
from typing import NamedTuple

# An IPv6 address in brackets; a link-local one may name its interface: [fe80::1%eth0].
IN_BRACKETS = r"\[([0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?)\]"
_LISTENER = re.compile(rf"([A-Za-z0-9_.-]+)://(?:{IN_BRACKETS}|([^:/\[\],]*)):(\d{{1,5}})")
_ADDRESS = re.compile(rf"(?:{IN_BRACKETS}|([^:/\[\],@]+)):(\d{{1,5}})")


class SecurityProtocol(IntEnum):
    """The security protocol of a listener, with Kafka's numbers in registrations."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class Listener(NamedTuple):
    """An address to bind or to advertise. An empty `host` means every interface, port 0 a free port."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def is_wildcard(self) -> bool:
        """Whether the address is every interface, so that its host cannot be advertised."""
        return self.host in {"", "0.0.0.0", "::"}  # noqa: S104  # compared, not bound

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str, protocols: dict[str, SecurityProtocol]) -> Listener:
    """Parse `NAME://host:port`; raises ValueError with a message of one line."""
    match = _LISTENER.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    name = match[1].upper()
    if name not in protocols:
        raise ValueError(f"listener {name} has no entry in listener.security.protocol.map")
    host = match[2] or match[3] or ""
    return Listener(name, host, _port(text, match[4]), protocols[name])


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port` or `[host]:port`; raises ValueError with a message of one line."""
    match = _ADDRESS.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return match[1] or match[2], _port(text, match[3])


def _port(text: str, digits: str) -> int:
    if int(digits) > 65535:
        raise ValueError(f"{text!r} has a port above 65535")
    return int(digits)
