"""Errors between a client and one broker, each with a message of one line.

`connect_error` and `tls_problem` turn errors of the system, OpenSSL or the broker into a line that says what to change.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from ottla.common.errors import ExpectedError


class NetworkError(ExpectedError):
    """An error between a client and one broker; the message names the broker."""


class ConnectFailed(NetworkError):
    """No connection: refused, an unknown host, or a timeout."""


class UnknownHost(ConnectFailed):
    """The host name cannot be resolved."""


class NotKafka(ConnectFailed):
    """The listener does not speak Kafka's protocol."""


class TlsRefused(ConnectFailed):
    """TLS failed: one side rejects the other's certificate, or only one side uses TLS."""


class AuthenticationRefused(ConnectFailed):
    """The broker rejected the client's credentials, or did not prove its own identity."""


class MechanismRefused(AuthenticationRefused):
    """The broker does not support this SASL mechanism."""


class ConnectionClosed(NetworkError):
    """The connection ended before the response; the broker may or may not have executed the request."""


class NoAnswer(NetworkError):
    """No response within the request's timeout; the broker may or may not have executed the request."""


class UnsupportedRequest(NetworkError):
    """The broker does not know the API, or no version that this client supports."""


class SecuritySettingError(ValueError):
    """A setting of TLS or SASL is wrong; the message is one line with its name and the remedy, without secrets."""


# OpenSSL's codes for untrusted certificates.
_NOT_YET_VALID, _EXPIRED, _WRONG_HOST, _WRONG_ADDRESS = 9, 10, 62, 64
_NOT_TRUSTED: Final = frozenset({2, 18, 19, 20, 21, 27})
_PLAINTEXT_REASONS: Final = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
_NO_COMMON_VERSION: Final = frozenset(
    {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "SSLV3_ALERT_HANDSHAKE_FAILURE", "NO_PROTOCOLS_AVAILABLE"}
)


def address_of(host: str, port: int) -> str:
    """How addresses are written in messages, and in `ClientConnection.address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_error(address: str, error: Exception, timeout_s: float, *, stage: str, is_tls: bool) -> ConnectFailed:
    """Return the exception for a failed connect; `stage` describes the problem if it was a timeout."""
    if isinstance(error, (TimeoutError, NoAnswer)):
        return ConnectFailed(f"{address}: {stage} within {timeout_s:g} s")
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return UnknownHost(f"{address}: the name resolves to nothing ({getattr(error, 'strerror', error)})")
    if isinstance(error, ConnectionClosed):
        # A broker that stops, or has too many connections, closes new connections in the same way.
        why = "closed the connection at the first request: does it want TLS, or is it not Kafka?"
        if is_tls:
            why = (
                "closed the connection at the first request, after the TLS handshake: does it want a client certificate"
                " (ssl.keystore.location), or is it not Kafka?"
            )
        return ConnectFailed(f"{address} {why}")
    if isinstance(error, ConnectionRefusedError):
        return ConnectFailed(f"{address}: connection refused, nothing listens there")
    if is_tls and isinstance(error, (ssl.SSLEOFError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        why = "the connection was closed in the TLS handshake: does this listener speak TLS (security.protocol)?"
        return ConnectFailed(f"{address}: {why}")
    if isinstance(error, ssl.SSLError):
        return TlsRefused(f"{address}: {tls_problem(error)}")
    return ConnectFailed(f"{address}: {getattr(error, 'strerror', None) or error}")


def tls_problem(error: ssl.SSLError) -> str:
    """Describe the reason of a TLS error, and the setting to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text, code = error.verify_message, error.verify_code
        if code in (_WRONG_HOST, _WRONG_ADDRESS):
            return (
                f"the broker's certificate is for another host ({text}): connect by the name that it has, or leave "
                "ssl.endpoint.identification.algorithm empty"
            )
        if code == _EXPIRED:
            return "the broker's certificate has expired: it needs a new one (or this machine's clock is wrong)"
        if code == _NOT_YET_VALID:
            return "the broker's certificate is not valid yet: is this machine's clock right?"
        if code in _NOT_TRUSTED:
            return f"the broker's certificate is not trusted ({text}): set ssl.truststore.location to its authority"
        return f"the broker's certificate was refused: {text}"
    reason = error.reason or str(error)
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_BAD_CERTIFICATE":
        return "the broker wants a certificate of this client: set ssl.keystore.location to one that it trusts"
    if "ALERT_UNKNOWN_CA" in reason or "CERTIFICATE_UNKNOWN" in reason or "ALERT_CERTIFICATE" in reason:
        return f"the broker does not take this client's certificate ({reason}): it needs one of an authority it trusts"
    if reason in _PLAINTEXT_REASONS:
        return (
            f"no TLS there ({reason}): set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or choose the TLS listener"
        )
    if reason in _NO_COMMON_VERSION:
        return f"the broker and this client have no version or cipher of TLS in common ({reason})"
    return f"no TLS connection ({reason})"
