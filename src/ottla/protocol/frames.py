"""Frames: four bytes of size, a header, a message.

Request headers have version 1, or 2 (with tagged fields) for flexible versions; the client id is never compact.
Response headers have version 0, or 1 for flexible versions. The header of an ApiVersions response always has version 0,
because a client reads it before it knows the versions of the broker (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.protocol._decoding import read_request_header
from ottla.protocol.declaration import API_VERSIONS, has_tagged_head
from ottla.protocol.message import Message
from ottla.protocol.registry import API
from ottla.protocol.wire import Buffer, DecodeError, EncodeError, read_uvarint, skip_tags

MAX_FRAME = 2**31 - 1

_REQUEST = Struct(">hhih")
_REQUEST_SIZE = _REQUEST.size
_unpack_request = _REQUEST.unpack_from
_new_tuple = tuple.__new__
_SIZED_REQUEST = Struct(">ihhih")
_pack_response = Struct(">ii").pack
_pack_flexible_response = Struct(">iiB").pack


class RequestHeader(NamedTuple):
    """The header of a request. The response has the same `correlation_id`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


_FLEXIBLE_FROM = {info.key: info.flexible_from for info in API.values()}


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position` (after the size), and the position of the body. Raises DecodeError.

    The header of an unknown API or version is read up to the client id, which is enough to reject the request.
    """
    if not position:
        found = read_request_header(buffer, _FLEXIBLE_FROM, RequestHeader)
        if found is not None:
            return found
    end = len(buffer)
    if end - position < _REQUEST_SIZE:
        raise DecodeError(f"A request header takes {_REQUEST_SIZE} bytes, {end - position} remain")
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
            raise DecodeError(f"The client id is not UTF-8: {error}") from error
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
    """An encoded response, for identical requests of the same version."""

    __slots__ = ("_body", "_tagged_head")

    def __init__(self, response: Message, version: int) -> None:
        self._tagged_head = has_tagged_head(type(response), version)
        self._body = response.encode(version)

    def __len__(self) -> int:
        return len(self._body)

    @property
    def body(self) -> bytes:
        """The response without a header."""
        return bytes(self._body)

    def encode_frame(self, version: int, correlation_id: int) -> list[Buffer]:  # noqa: ARG002 - the bytes have a version
        """A whole frame, like `Message.encode_frame`."""
        return frame_response([self._body], correlation_id, tagged_head=self._tagged_head)


def frame_response(parts: list[Buffer], correlation_id: int, *, tagged_head: bool) -> list[Buffer]:
    """The parts of a response after a header. Only a single part is copied."""
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    if tagged_head:
        head = _pack_flexible_response(_checked(size + 5), correlation_id, 0)
    else:
        head = _pack_response(_checked(size + 4), correlation_id)
    if len(parts) == 1:
        return [head + parts[0]]
    return [head, *parts]


def encode_response(header: RequestHeader, response: Message | Encoded) -> list[Buffer]:
    """A whole frame in the version of the request, as buffers to write one after the other."""
    return response.encode_frame(header.api_version, header.correlation_id)


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
        raise DecodeError(f"A response header takes 4 bytes, {len(buffer) - position} remain")
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
