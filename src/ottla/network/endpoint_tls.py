"""The TLS of the metrics endpoint of a node or a Spark driver: its own key and certificate, read again if they change.

The versions, suites and allowed changes of names are the node's. Open connections keep the certificate with which they
began; a scrape with a kept-alive connection sees a new one after its next connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import BrokerConfig
from ottla.config.metrics_rows import CLIENT_AUTH, KEY_PASSWORD, KEYSTORE, SSL_PREFIX, TRUSTSTORE
from ottla.network.connection import ANONYMOUS
from ottla.network.errors import SecuritySettingError
from ottla.network.handshakes import Handshakes
from ottla.network.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

_FLAGS: Final = ("ssl.allow.dn.changes", "ssl.allow.san.changes")
_LISTS: Final = ("ssl.cipher.suites", "ssl.enabled.protocols")
_SSL_NAME: Final = re.compile(r"(?<![\w.])ssl\.(?=keystore|truststore|key\.|client)")


_BUFFER_BYTES: Final = 4 * 1024
"""Decrypted bytes at a time; a request has a few hundred."""


class _Decrypted:
    """Passes decrypted bytes to a protocol of asyncio."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.principal = ANONYMOUS
        self.remote_host = ""
        self.remote_port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("", 0)
        self.remote_host, self.remote_port = peer[:2]
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(self._buffer[:nbytes]))

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def _refused(connection: _Decrypted, problem: str) -> None:
    # The scraper logs its own error; a port scanner must not fill the log of the node.
    logger.debug("Refused a scrape from %s:%d: %s", connection.remote_host, connection.remote_port, problem)


class EndpointTls:
    """The TLS of the endpoint. `reload` reads changed files."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the files. Raises KafkaError (INVALID_CONFIG) if they cannot be used."""
        own = {name.removeprefix(SSL_PREFIX): config.text(name) for name in (KEYSTORE, KEY_PASSWORD, TRUSTSTORE)}
        shared = {name: str(config.bool(name)).lower() for name in _FLAGS}
        shared |= {name: ",".join(config.items(name)) for name in _LISTS if config.items(name)}
        chosen = {name: value for name, value in own.items() if value is not None}
        client_auth = config.text(CLIENT_AUTH) or "none"
        self._config = BrokerConfig({"node.id": "1", **shared, **chosen, "ssl.client.auth": client_auth})
        self._handshakes: Handshakes | None = None
        try:
            self._tls = ListenerTls("METRICS", self._config)
        except SecuritySettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, _with_prefix(error)) from error

    def protocol(self, inner: asyncio.Protocol) -> asyncio.BaseProtocol:
        """Return the protocol of an accepted socket; `inner` handles the decrypted bytes."""
        if self._handshakes is None:
            self._handshakes = Handshakes()
        return self._tls.protocol(_Decrypted(inner), self._handshakes, _refused)

    def reload(self) -> None:
        """Use changed files for new connections. Files that cannot be used are a warning, once for each change."""
        try:
            if self._tls.reload(self._config):
                logger.info("The metrics endpoint uses a new certificate or trust store for new connections")
        except SecuritySettingError as error:
            logger.warning("The certificate of the metrics endpoint stays as it was: %s", _with_prefix(error))


def endpoint_tls(config: BrokerConfig) -> EndpointTls | None:
    """Return the TLS of the endpoint; None for plain HTTP. Raises KafkaError (INVALID_CONFIG)."""
    if all(config.text(name) is None for name in (KEYSTORE, KEY_PASSWORD, TRUSTSTORE)):
        if config.text(CLIENT_AUTH) == "none":
            return None
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{CLIENT_AUTH} needs HTTPS: set {KEYSTORE} and {TRUSTSTORE}")
    return EndpointTls(config)


def accepting(tls: EndpointTls | None, protocol: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.BaseProtocol]:
    """Return what makes the protocol of an accepted socket, given what handles its decrypted bytes."""
    return protocol if tls is None else lambda: tls.protocol(protocol())


def _with_prefix(error: SecuritySettingError) -> str:
    """Return the message with the names of the settings of the endpoint."""
    return _SSL_NAME.sub(f"{SSL_PREFIX}ssl.", str(error))
