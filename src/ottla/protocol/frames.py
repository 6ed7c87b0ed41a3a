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
_REQUEST_SIZE = _REQUEST.size
_unpack_request = _REQUEST.unpack_from
_new_tuple = tuple.__new__
_SIZED_REQUEST = Struct(">ihhih")
_pack_response = Struct(">ii").pack
_pack_flexible_response = Struct(">iiB").pack


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
    end = len(buffer)
    if end - position < _REQUEST_SIZE:
        raise DecodeError(f"A request header takes {_REQUEST_SIZE} bytes, {end - position} are there")
    key, version, correlation_id, length = _unpack_request(buffer, position)
    position += _REQUEST_SIZE
    client_id = None
    if length != -1:
        stop = position + length
        if length < 0 or stop > end:
            raise DecodeError(f"The client id claims length {length}, {end - position} bytes remain")
        try:
            client_id = str(buffer[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"The client id is no UTF-8: {error}") from error
        position = stop
    info = API.get(key)
    if info is not None and version >= info.flexible_from:
        if position < end and not buffer[position]:
            position += 1
        else:
            count, position = read_uvarint(buffer, position)
            if count > 127:
                raise DecodeError(f"A request header with {count} tagged fields")
            position = skip_tags(buffer, position, count)
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id)), position


class Encoded:
    """A response in bytes, to be sent again to whoever asks the same in the same version."""

    __slots__ = ("API_KEY", "FLEXIBLE_FROM", "_body")

    def __init__(self, response: Message, version: int) -> None:
        self.API_KEY = response.API_KEY
        self.FLEXIBLE_FROM = response.FLEXIBLE_FROM
        self._body = response.encode(version)

    def __len__(self) -> int:
        return len(self._body)

    def encode_parts(self, version: int, parts: list[Buffer]) -> None:  # noqa: ARG002 - it was chosen before
        """Append the bytes to `parts`, as a message does."""
        parts.append(self._body)


def encode_response(header: RequestHeader, response: Message | Encoded) -> list[Buffer]:
    """A whole frame, in the version that the request had, as buffers to write one after the other."""
    _, version, correlation_id, _ = header
    parts: list[Buffer] = []
    response.encode_parts(version, parts)
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    if version >= response.FLEXIBLE_FROM and response.API_KEY != API_VERSIONS:
        head = _pack_flexible_response(_checked(size + 5), correlation_id, 0)
    else:
        head = _pack_response(_checked(size + 4), correlation_id)
    if len(parts) == 1:
        return [head + parts[0]]
    return [head, *parts]


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
