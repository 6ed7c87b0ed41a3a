"""Which topics the members of a consumer group read, from the metadata they join with.

The metadata are ConsumerProtocolSubscription of any version: a 16-bit version, then in all of them the topic names.
Only these are read, so that a version not known here is no obstacle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The union over all members; None if one of them cannot be read."""
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
    # Each name takes two bytes or more: a larger count is nonsense, refused before it allocates.
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
