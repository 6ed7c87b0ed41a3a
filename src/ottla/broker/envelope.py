"""Requests of clients inside of an Envelope: encoded by the broker, decoded by the active controller. KIP-590.

The envelope has the whole request with its header, the client's principal in the form of Kafka's DefaultPrincipalData,
and the client's address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.context import DELEGATED
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.protocol import frames
from ottla.protocol.message import Message
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.registry import response_class
from ottla.protocol.wire import DecodeError, read_uvarint, uvarint

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

# Client requests that change or read what only the active controller knows. Requests that change settings are forwarded
# by their handlers, because the broker decides a part of them.
FORWARDED = frozenset({19, 20, 37, 43, 45, 46, 49, 51, 55, 57, 64, 80, 81})
# Stock brokers also forward changes of rules and tokens, which are refused.
FORWARDABLE = FORWARDED | {30, 31, 33, 38, 39, 40, 44}

_NO_TAGS = b"\0"
_PRINCIPAL_VERSION = b"\0\0"


@value
class Client:
    """The client whose request was forwarded. Handlers use it like a connection."""

    principal: str
    remote_host: str
    listener: str
    closed: bool
    state: dict[str, object]

    def on_close(self, callback: Callable[[], None]) -> None:
        """Ignore the callback: the client's connection is to another node."""


def encode(context: RequestContext, request: Message) -> EnvelopeRequest:
    """Enclose a client's request, in the version in which the client sent it."""
    parts = frames.encode_request(request, context.api_version, context.correlation_id, context.client_id)
    return EnvelopeRequest(
        request_data=b"".join(parts)[4:],
        request_principal=encode_principal(context.principal, context.is_by_token),
        client_host_address=_address(context.client_host),
    )


def decode_response(context: RequestContext, response: EnvelopeResponse) -> Message:
    """Return the controller's response to the client's request. Raises KafkaError.

    An error of the envelope is one of this cluster, not of the client: it becomes UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    data = response.response_data
    if response.error_code or data is None:
        text = f"The active controller refused the forwarded request with error {response.error_code}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    key, version = context.api_key, context.api_version
    try:
        _, position = frames.decode_response_header(data, key, version)
        decoded, _ = response_class(key).decode_from(memoryview(bytearray(data)), position, version)
    except DecodeError as error:
        text = f"The active controller sent an invalid response: {error}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
    return decoded


def client_of(request: EnvelopeRequest, listener: str) -> Client:
    """The client that sent the enclosed request. Raises KafkaError."""
    address = request.client_host_address
    try:
        host = socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address from envelope") from error
    principal, by_token = decode_principal(request.request_principal)
    state: dict[str, object] = {DELEGATED: True} if by_token else {}
    return Client(principal, host.removeprefix("::ffff:"), listener, False, state)


def encode_principal(principal: str, by_token: bool = False) -> bytes:
    """Encode `Type:name`, and whether the client logged in by delegation token, as DefaultPrincipalData, version 0."""
    kind, _, name = principal.partition(":")
    return _PRINCIPAL_VERSION + _text(kind) + _text(name) + (b"\1" if by_token else b"\0") + _NO_TAGS


def decode_principal(data: bytes | None) -> tuple[str, bool]:
    """Return `Type:name`, and whether the client logged in by token. Raises PRINCIPAL_DESERIALIZATION_FAILURE."""
    problem = KafkaError(
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "Failed to deserialize client principal from envelope"
    )
    if data is None or data[:2] != _PRINCIPAL_VERSION:
        raise problem
    try:
        kind, position = _read_text(data, 2)
        name, position = _read_text(data, position)
        by_token = data[position] != 0
    except (DecodeError, UnicodeDecodeError, IndexError) as error:
        raise problem from error
    return f"{kind}:{name}", by_token


def _text(value: str) -> bytes:
    data = value.encode()
    return uvarint(len(data) + 1) + data


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    size, position = read_uvarint(data, position)
    end = position + size - 1
    if size < 1 or end > len(data):
        raise DecodeError(f"A text claims {size - 1} bytes, {len(data) - position} remain")
    return data[position:end].decode(), end


def _address(host: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.partition("%")[0])
    except OSError:
        return bytes(4)
