"""SaslHandshake (17) chooses a SASL mechanism.

With version 1 the exchange follows in SaslAuthenticate, with version 0 in bare frames.
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Message


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    """Names the mechanism wanted."""

    mechanism: str = ""


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    """The mechanisms enabled."""

    error_code: Int16 = 0
    mechanisms: list[str] = []
