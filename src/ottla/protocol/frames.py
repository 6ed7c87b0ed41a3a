"""Frames: four bytes of size, a header, a message.

Request headers are version 1, or 2 (with tagged fields) for flexible versions; the client id never becomes compact.
Response headers are version 0, or 1 for flexible versions, except that ApiVersions always answers with version 0: a
client must be able to read the answer before it knows what the broker speaks (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.protocol.message import Message
from ottla.protocol.registry import API
from ottla.protocol.wire import Buffer, DecodeError, EncodeError, read_uvarint, skip_tags

API_VERSIONS = 18
MAX_FRAME = 2**31 - 1

_REQUEST = Struct(">hhih")
_SIZED_REQUEST = Struct(">ihhih")
_SIZED_RESPONSE = Struct(">ii")
_SIZED_FLEXIBLE_RESPONSE = Struct(">iiB")


class RequestHeader(NamedTuple):
    """What stands before every request. A response echoes `correlation_id`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position` (after the size), and the position of the body. Raises DecodeError.

    The header of an API or version that nobody knows is read up to the client id: enough to refuse it.
    """
    if len(buffer) - position < _REQUEST.size:
        raise DecodeError(f"A request header takes {_REQUEST.size} bytes, {len(buffer) - position} are there")
    key, version, correlation_id, length = _REQUEST.unpack_from(buffer, position)
    position += _REQUEST.size
    client_id = None
    if length != -1:
        stop = position + length
        if length < 0 or stop > len(buffer):
            raise DecodeError(f"The client id claims length {length}, {len(buffer) - position} bytes remain")
        try:
            client_id = str(buffer[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"The client id is no UTF-8: {error}") from error
        position = stop
    info = API.get(key)
    if info is not None and version >= info.flexible_from:
        count, position = read_uvarint(buffer, position)
        if count:
            if count > 127:
                raise DecodeError(f"A request header with {count} tagged fields")
            position = skip_tags(buffer, position, count)
    return RequestHeader(key, version, correlation_id, client_id), position


def encode_response(header: RequestHeader, response: Message) -> list[Buffer]:
    """A whole frame, in the version that the request had, as buffers to write one after the other."""
    version = header.api_version
    parts: list[Buffer] = [b""]
    response.encode_parts(version, parts)
    size = sum(map(len, parts))
    if version >= response.FLEXIBLE_FROM and response.API_KEY != API_VERSIONS:
        head = _SIZED_FLEXIBLE_RESPONSE.pack(_checked(size + 5), header.correlation_id, 0)
    else:
        head = _SIZED_RESPONSE.pack(_checked(size + 4), header.correlation_id)
    if len(parts) == 2:
        return [head + parts[1]]
    parts[0] = head
    return parts


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """A whole frame of a request, as buffers to write one after the other."""
    name = b"" if client_id is None else client_id.encode()
    flexible = version >= request.FLEXIBLE_FROM
    parts: list[Buffer] = [b""]
    request.encode_parts(version, parts)
    size = _checked(_REQUEST.size + len(name) + flexible + sum(map(len, parts)))
    length = -1 if client_id is None else len(name)
    head = _SIZED_REQUEST.pack(size, request.API_KEY, version, correlation_id, length) + name
    parts[0] = head + b"\0" if flexible else head
    return parts


def decode_response_header(buffer: Buffer, api_key: int, api_version: int, position: int = 0) -> tuple[int, int]:
    """The correlation id at `position` (after the size), and the position of the body. Raises DecodeError."""
    if len(buffer) - position < 4:
        raise DecodeError(f"A response header takes 4 bytes, {len(buffer) - position} are there")
    correlation_id = int.from_bytes(buffer[position : position + 4], "big", signed=True)
    position += 4
    if api_key != API_VERSIONS and API[api_key].is_flexible(api_version):
        count, position = read_uvarint(buffer, position)
        if count > 127:
            raise DecodeError(f"A response header with {count} tagged fields")
        position = skip_tags(buffer, position, count)
    return correlation_id, position


def _checked(size: int) -> int:
    if size > MAX_FRAME:
        raise EncodeError(f"A frame of {size} bytes is too long")
    return size
