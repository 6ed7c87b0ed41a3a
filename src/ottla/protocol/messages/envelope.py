"""Envelope (58) forwards a client's request to the controller. KIP-590."""

from __future__ import annotations

from ottla.protocol.message import Int16, Message


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    """The request and who sent it."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    """The response to pass on."""

    response_data: bytes | None = None
    error_code: Int16 = 0
