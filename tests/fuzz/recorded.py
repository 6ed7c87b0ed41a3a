"""Requests that real clients sent, in the order of their conversations, from `corpus/recorded.bin`.

`make corpus` records the file again (`recording.py`). It is compressed with zlib and contains, for each frame, the name
of the client's software, the number of its connection, and the frame without its four bytes of size.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol import frames, registry
from ottla.protocol.message import Struct
from ottla.protocol.plans import plans_of
from ottla.protocol.wire import DecodeError, VersionError

CORPUS = Path(__file__).parent / "corpus" / "recorded.bin"
_HEAD = struct.Struct(">BII")
TOPIC_FIELDS = {"topic", "name", "topic_name", "topics_names", "topic_names"}


class Recorded(NamedTuple):
    """One request as a client sent it."""

    client: str
    connection: int
    frame: bytes

    @property
    def api(self) -> tuple[int, int]:
        """Key and version."""
        key, version = struct.unpack_from(">hh", self.frame)
        return key, version


def write(path: Path, requests: Iterable[Recorded]) -> None:
    parts = []
    for each in requests:
        client = each.client.encode()
        parts.append(_HEAD.pack(len(client), each.connection, len(each.frame)) + client + each.frame)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(b"".join(parts), 9))


@cache
def corpus(path: Path = CORPUS) -> tuple[Recorded, ...]:
    """All recorded requests."""
    data = zlib.decompress(path.read_bytes())
    found, position = [], 0
    while position < len(data):
        length, connection, size = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        client = data[position : position + length].decode()
        position += length
        found.append(Recorded(client, connection, data[position : position + size]))
        position += size
    return tuple(found)


class World(NamedTuple):
    """The names and ids of the broker that receives a recorded request."""

    topic: str
    topic_id: bytes
    member_id: str


def adapted(frame: bytes, world: World) -> bytearray:
    """The request, with the topics and members of this broker; unchanged if it cannot be decoded."""
    try:
        header, position = frames.decode_request_header(memoryview(frame))
        cls = registry.request_class(header.api_key)
        request, _ = cls.decode_from(memoryview(bytearray(frame)), position, header.api_version)
    except (DecodeError, VersionError, KeyError):
        return bytearray(frame)
    _adapt(request, world)
    data = b"".join(frames.encode_request(request, header.api_version, header.correlation_id, header.client_id))
    return bytearray(data[4:])


def _adapt(value: Any, world: World) -> None:
    for plan in plans_of(type(value)):
        held = getattr(value, plan.name, None)
        if plan.struct is not None:
            for part in held if isinstance(held, list) else [held]:
                if isinstance(part, Struct):
                    _adapt(part, world)
        elif plan.kind == "Uuid" and isinstance(held, bytes) and any(held):
            setattr(value, plan.name, world.topic_id)
        elif plan.name in TOPIC_FIELDS and isinstance(held, str) and "Protocol" not in type(value).__name__:
            setattr(value, plan.name, world.topic)
        elif plan.name in TOPIC_FIELDS and isinstance(held, list):
            setattr(value, plan.name, [world.topic] * len(held))
        elif plan.name == "member_id" and held and world.member_id:
            setattr(value, plan.name, world.member_id)


def shuffled(chance: random.Random) -> list[Recorded]:
    """The conversations in another order; the requests of each conversation keep their order."""
    by_connection: dict[int, list[Recorded]] = {}
    for each in corpus():
        by_connection.setdefault(each.connection, []).append(each)
    order = list(by_connection)
    chance.shuffle(order)
    return [each for connection in order for each in by_connection[connection]]
