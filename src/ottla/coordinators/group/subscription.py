"""The topics to which a consumer group subscribes, from the metadata with which its members join.

The metadata is a ConsumerProtocolSubscription: a 16-bit version, then in all versions the topic names. Only these are
read, so that unknown versions can be read, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The union of all members' topics; None if the metadata of a member cannot be read."""
    topics: set[str] = set()
    for one in set(metadata):
        try:
            topics.update(_topics(one))
        except (struct.error, ValueError):
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[str]:
    _, count = _HEAD.unpack_from(metadata, 0)
    position = _HEAD.size
    # Each name takes at least two bytes. A count that cannot fit is rejected before anything is allocated.
    if count < 0 or count > (len(metadata) - position) // 2:
        raise ValueError(f"{count} topics in {len(metadata)} bytes")
    topics = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            raise ValueError(f"a topic name of {length} bytes at {position} does not fit")
        topics.append(metadata[position : position + length].decode())
        position += length
    return topics
