"""One HTTP connection: uvicorn's protocol on httptools, with limits that it lacks.

- Headers have to arrive within `header_s` and have at most `header_bytes`.
- After a response to a request whose body did not arrive completely, the rest is discarded for a limited time, so that
  the client can read the response before the connection is closed.
- A client that does not read its responses loses its connection.

The principal of a TLS client is in the state of the scope: `certificate_of`, `principal_of`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_PRINCIPAL: Final = "ottla.principal"
_LINGER_S: Final = 5.0
_NO_PROGRESS_S: Final = 30.0


class ConnectionLimits(NamedTuple):
    """Limits of each connection."""

    header_s: float = 10.0
    header_bytes: int = 64 * 1024
    keep_alive_s: int = 60


def certificate_principal(scope: Mapping[str, Any]) -> str | None:
    """Return the principal of the TLS certificate of a request's client; None if it presented none."""
    principal = scope["state"].get(_PRINCIPAL)
    assert principal is None or isinstance(principal, str)
    return principal


PrincipalOf = Callable[[bytes | None, str], str]


class HttpConnection(HttpToolsProtocol):
    """The protocol of one connection; `limits` and `principal_of` are set by `connection_type`."""

    limits = ConnectionLimits()
    principal_of: PrincipalOf | None = None

    _timer: asyncio.TimerHandle | None = None
    _awaits_headers = True
    _pending_header_bytes = 0
    _ended_message = False
    _principal: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Identify a TLS client, and begin to wait for its first request."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and type(self).principal_of is not None and not self._identify(tls):
            transport.abort()
            return
        self._start(self.limits.header_s)

    def _identify(self, tls: ssl.SSLObject) -> bool:
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return True
        principal_of = type(self).principal_of
        assert principal_of is not None
        try:
            self._principal = principal_of(certificate, self.client[0] if self.client else "")
        except ValueError as error:
            self.logger.warning("Refused the certificate of %s: %s", self.client, error)
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the timer."""
        self._cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and limit headers that are not complete."""
        self._ended_message = False
        super().data_received(data)
        if not self._awaits_headers or self.transport.is_closing():
            return
        # After the end of a message the few bytes of the next one are not told apart; the next ones are counted.
        self._pending_header_bytes = 0 if self._ended_message else self._pending_header_bytes + len(data)
        if self._pending_header_bytes > self.limits.header_bytes:
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()
        elif self._timer is None and self.timeout_keep_alive_task is None:
            self._start(self.limits.header_s)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if self._principal is not None:
            self.scope["state"][_PRINCIPAL] = self._principal

    def on_headers_complete(self) -> None:
        """Begin to handle a request."""
        self._cancel()
        self._awaits_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the end of a body."""
        super().on_message_complete()
        self._awaits_headers = self._ended_message = True
        self._cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for a limited time for the rest of the body."""
        super().on_response_complete()
        if not self._awaits_headers:
            self._start(_LINGER_S)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, at the latest when the client stops reading."""
        super().timeout_keep_alive_handler()
        self._abort_without_progress(self.transport.get_write_buffer_size() + 1)

    def _abort_without_progress(self, before_bytes: int) -> None:
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before_bytes:
            self.transport.abort()
        elif waiting:
            self.loop.call_later(_NO_PROGRESS_S, self._abort_without_progress, waiting)

    def _start(self, after_s: float) -> None:
        self._cancel()
        self._timer = self.loop.call_later(after_s, self._expire)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        is_busy = self.cycle is not None and not self.cycle.response_complete
        # The bytes of a next request may arrive while a response is computed; they have no limit of time until then.
        if not is_busy and not self.transport.is_closing():
            self.transport.close()


def connection_type(limits: ConnectionLimits, principal_of: PrincipalOf | None) -> type[HttpConnection]:
    """Return the protocol with these limits. `principal_of` maps certificates of TLS clients to principals."""
    members = {"limits": limits, "principal_of": None if principal_of is None else staticmethod(principal_of)}
    return type("HttpConnection", (HttpConnection,), members)
