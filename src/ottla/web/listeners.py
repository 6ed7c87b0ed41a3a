"""The listeners of an HTTP server: addresses such as `http://127.0.0.1:8081`, TLS settings, bound sockets.

TLS has the names of Kafka's settings (`ssl.keystore.location`, ...) and Confluent's `ssl.client.authentication`. A
listener that other machines can reach needs authentication, unless the operator allows it with `--insecure`.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.failure import Failure
from ottla.config import BrokerConfig, ConfigError, Listener, parse_address
from ottla.config.listener_settings import KEY_STORE_SETTINGS
from ottla.network.errors import SecuritySettingError
from ottla.network.listener_tls import ListenerTls
from ottla.network.principals import principal_builder
from ottla.network.sockets import ListenError, bind, is_loopback

logger = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
CLIENT_AUTHENTICATION: Final = "ssl.client.authentication"
TLS_SETTINGS: Final = (
    *KEY_STORE_SETTINGS,
    "ssl.cipher.suites",
    CLIENT_AUTHENTICATION,
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.principal.mapping.rules",
)
"""The settings that `tls_config` reads."""
# Confluent's `ssl.client.auth` is a boolean, Kafka's has the words of `ssl.client.authentication`.
_CLIENT_AUTH: Final = {"true": "required", "false": "none"}


class Address(NamedTuple):
    """An address to listen on; port 0 is a free port."""

    host: str
    port: int
    uses_tls: bool = False

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.uses_tls else 'http'}://{host}:{self.port}"


def parse_listener(text: str) -> Address:
    """Parse `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT` or `PORT` (on 127.0.0.1). Raises ValueError."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "http", scheme
    if scheme.lower() not in {"http", "https"}:
        raise ValueError(f"{text!r} begins with neither http:// nor https://")
    rest = rest.rstrip("/")
    bare_port = rest.removeprefix(":")
    host, port = (LOOPBACK, int(bare_port)) if bare_port.isdecimal() else parse_address(rest)
    if port > 65535:
        raise ValueError(f"{text!r}: {port} is above 65535, the highest port")
    return Address(host, port, scheme.lower() == "https")


def tls_config(settings: Mapping[str, str]) -> BrokerConfig:
    """Return the TLS settings as the settings of a broker, which has the same names. Raises Failure."""
    chosen = {name: settings[name] for name in TLS_SETTINGS if settings.get(name)}
    client_auth = chosen.pop(CLIENT_AUTHENTICATION, chosen.get("ssl.client.auth", "none")).lower()
    chosen["ssl.client.auth"] = _CLIENT_AUTH.get(client_auth, client_auth)
    try:
        return BrokerConfig({**chosen, "node.id": "1"})
    except ConfigError as error:
        raise Failure(str(error), exit_code=2) from error


class BoundListener:
    """A bound listener. `address` has the real port."""

    def __init__(self, address: Address, tls: BrokerConfig) -> None:
        """Bind the address and read the key stores; raises Failure."""
        self._tls_config = tls
        self.tls = _tls(address, tls) if address.uses_tls else None
        try:
            self.sockets = bind(Listener("HTTP", address.host, address.port), BrokerConfig({"node.id": "1"}))
        except ListenError as error:
            advice = "Another process uses the port: choose another one with --listen HOST:PORT, or port 0."
            raise Failure(f"cannot listen on {address.url}: {error.strerror}", advice) from error
        self.address = address._replace(port=self.sockets[0].getsockname()[1])

    @property
    def is_reachable(self) -> bool:
        """Whether other machines can connect."""
        return not all(map(is_loopback, self.sockets))

    @property
    def requires_certificates(self) -> bool:
        """Whether each client has to present a certificate."""
        return self.tls is not None and self._tls_config.text("ssl.client.auth") == "required"

    def reload(self) -> bool:
        """Read a changed key store again; whether new connections need the new context."""
        if self.tls is None:
            return False
        try:
            return self.tls.reload(self._tls_config)
        except SecuritySettingError as error:
            logger.warning("The certificate of %s stays as it was: %s", self.address.url, error)
            return False

    def close(self) -> None:
        """Close the sockets."""
        for sock in self.sockets:
            sock.close()

    def duplicates(self) -> list[socket.socket]:
        """Return the sockets for a server that closes them: the originals stay open for a next server."""
        return [sock.dup() for sock in self.sockets]


def _tls(address: Address, config: BrokerConfig) -> ListenerTls:
    try:
        tls = ListenerTls(address.url, config)
        tls.principal_of = principal_builder("HTTP", config)
    except (SecuritySettingError, KafkaError) as error:
        raise Failure(str(error), exit_code=2) from error
    return tls


def bind_all(
    addresses: tuple[Address, ...], tls: BrokerConfig, *, authenticates: bool, insecure: bool
) -> list[BoundListener]:
    """Bind the listeners; raises Failure, also for one that other machines reach without authentication."""
    bound: list[BoundListener] = []
    try:
        for address in addresses:
            bound.append(BoundListener(address, tls))  # noqa: PERF401 - a failure closes those before it
        exposed = [each for each in bound if each.is_reachable and not (authenticates or each.requires_certificates)]
        shown = ", ".join(each.address.url for each in exposed)
        if exposed and not insecure:
            raise Failure(
                f"{shown} would be open to other machines without authentication",
                "Use authentication or ssl.client.authentication=REQUIRED, listen on 127.0.0.1, or start with"
                " --insecure.",
                exit_code=2,
            )
    except Failure:
        for each in bound:
            each.close()
        raise
    if exposed:
        logger.warning("Listening on %s, which other machines can reach, without authentication", shown)
    readable = ", ".join(each.address.url for each in bound if each.is_reachable and each.tls is None)
    if readable and authenticates:
        logger.warning("Listening on %s without encryption: credentials can be read on the network", readable)
    return bound
