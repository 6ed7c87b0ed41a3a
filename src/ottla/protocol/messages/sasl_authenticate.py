"""SaslAuthenticate (36) carries SASL tokens. Version 1 limits the session's life (KIP-368)."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int64, Message, since


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    """A token of the client."""

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    """The server's token, and how long the session lasts."""

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Int64 = since(1)
