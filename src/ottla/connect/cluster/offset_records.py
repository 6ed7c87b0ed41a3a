"""Source offsets in Connect's topic: key `["NAME",{partition}]`, value `{offset}`, null deletes the offset.

Two partitions are the same if their JSON values are equal, in any order of fields. The topic is compacted by the bytes
of the key, so a position must always have the same bytes: `OffsetState.key` reuses those that the topic has, and
otherwise orders the fields as a java.util.HashMap does, in which most Java connectors have them. No I/O.

A task writes its offsets in the transaction of its records: `key` and `value` make such a record. Readers of exactly-
once connectors read only committed records. Sources: OffsetStorageWriter, OffsetUtils, KafkaOffsetBackingStore of 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from ottla.connect.api import SourceOffset
from ottla.connect.errors import BadRequestError
from ottla.connect.records import Position


class OffsetKey(NamedTuple):
    """The key of a source offset."""

    connector: str
    partition: Position


def value(offset: Position | None) -> bytes | None:
    """Encode an offset; None deletes it. Raises BadRequestError for a value that is not JSON."""
    if offset is None:
        return None
    _check(offset)
    return _dumps(dict(offset))


def read_key(data: bytes | None) -> OffsetKey | None:
    """Decode the key of a record; None for other records."""
    try:
        fields = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, list) or len(fields) != 2 or not isinstance(fields[0], str):
        return None
    return OffsetKey(fields[0], fields[1]) if isinstance(fields[1], dict) else None


def read_value(data: bytes | None) -> Position | None:
    """Decode an offset; None if there is no object."""
    try:
        fields = orjson.loads(data or b"null")
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None


class OffsetState:
    """The offsets of one topic, of all connectors that use it."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[bytes, tuple[bytes, Position]]] = {}

    def apply(self, key: bytes | None, data: bytes | None) -> bool:
        """Apply a record. False: it has no offset, and no effect."""
        found = read_key(key)
        if found is None or key is None:
            return False
        of_connector = self._offsets.setdefault(found.connector, {})
        same = canonical(found.partition)
        offset = read_value(data)
        if data is None:
            of_connector.pop(same, None)
        elif offset is None:
            return False
        else:
            of_connector[same] = key, offset
        return True

    def get(self, connector: str, partition: Position) -> Position | None:
        """The offset of a source partition."""
        found = self._offsets.get(connector, {}).get(canonical(partition))
        return None if found is None else found[1]

    def all(self, connector: str) -> Sequence[SourceOffset]:
        """The offsets of a connector, in a stable order."""
        found = sorted(self._offsets.get(connector, {}).items())
        return [SourceOffset(orjson.loads(key)[1], offset) for _, (key, offset) in found]

    def key(self, connector: str, partition: Position) -> bytes:
        """Encode the key for a source partition. Raises BadRequestError for values that are not JSON."""
        known = self._offsets.get(connector, {}).get(canonical(partition))
        return known[0] if known is not None else key(connector, partition)


def key(connector: str, partition: Position) -> bytes:
    """Encode the key for a source partition that the topic does not have yet."""
    _check(partition)
    return _dumps([connector, {name: partition[name] for name in hash_map_order(list(partition))}])


def canonical(partition: Position) -> bytes:
    """Return bytes that are equal for equal partitions."""
    _check(partition)
    return _dumps(partition, orjson.OPT_SORT_KEYS)


def hash_map_order(names: Sequence[str]) -> list[str]:
    """Order strings as a java.util.HashMap iterates over them, if it was filled in this order and never held more."""
    size = 16
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(name) & (size - 1))


def _spread(text: str) -> int:
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code ^ code >> 16


def _check(position: Mapping[str, Any]) -> None:
    for name, content in position.items():
        if not isinstance(name, str):
            raise BadRequestError(f"Offsets may only use String keys, not {name!r}")
        if content is not None and not isinstance(content, (str, int, float, bool)):
            kind = type(content).__name__
            raise BadRequestError(
                f"Offsets may only contain primitive types as values, but field {name} contains {kind}"
            )


def _dumps(fields: object, option: int = 0) -> bytes:
    try:
        return orjson.dumps(fields, option=option)
    except TypeError as error:
        raise BadRequestError(f"The source offset or partition {fields!r} cannot be JSON: {error}") from error
