"""Descriptions of failed TLS handshakes of clients, for the broker's log."""

from __future__ import annotations

import ssl
from typing import Final

PLAINTEXT_CLIENT: Final = "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL"
CLOSED_BY_CLIENT: Final = (
    "the client closed the connection during the handshake; it may not trust this broker's certificate"
)
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth=required",
    "NO_SHARED_CIPHER": "the client supports none of the broker's cipher suites (ssl.cipher.suites)",
    "UNSUPPORTED_PROTOCOL": "the client's TLS versions are not in ssl.enabled.protocols",
    "VERSION_TOO_LOW": "the client's TLS versions are not in ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "the client's bytes are not TLS",
}
_UNTRUSTED: Final = "the client does not trust this broker's certificate: check its ssl.truststore and the host name"
# The reasons of alerts that clients send when they reject the broker's certificate.
_ALERTS: Final = (
    "ALERT_UNKNOWN_CA",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_ACCESS_DENIED",
)


def handshake_problem(error: OSError) -> str:
    """Return why a handshake failed, and what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid here: {error.verify_message} (ssl.truststore)"
    reason = getattr(error, "reason", None) or ""
    if reason.endswith(_ALERTS):
        return f"{_UNTRUSTED} ({reason})"
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)):
        return CLOSED_BY_CLIENT
    return _REASONS.get(reason) or f"TLS error {reason or error}"
