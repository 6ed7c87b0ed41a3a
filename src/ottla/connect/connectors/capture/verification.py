"""Compares a table with its topic: a hash for each range of the key, and the rows of ranges that differ.

The topic is read once, in the order of its records; of each row a hash of 8 bytes and its key stay in memory. The table
is read from one snapshot. Changes that the task has not emitted yet would be differences: the caller reads the topic
after the task has passed the snapshot, or compares again (`verify` does, for a number of rounds). A database gives
`Tables`: which tables it captures, and their rows as events have them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.connect.errors import ConnectError

RANGES: Final = 1024
MOST_NAMED: Final = 100
ROUND_S: Final = 2.0

Rows = Iterator[tuple[Any, Any]]
"""Keys and rows."""
Progress = Callable[[str], None]
Converted = Callable[[tuple[Any, Any], tuple[Any, Any]], tuple[Any, Any]]
"""Does to a key and a row (schemas with values) what the converters did to the records of the topic."""


class TableName(NamedTuple):
    """The name of a table; `schema` is the database of MariaDB and MySQL."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class Tables:
    """The captured tables of a configuration. Both functions raise ConnectError."""

    names: Callable[[], Sequence[TableName]]
    rows: Callable[[TableName, Converted], Rows]


def as_it_is(key: tuple[Any, Any], row: tuple[Any, Any]) -> tuple[Any, Any]:
    """Convert nothing."""
    return key[1], row[1]


def no_key(name: TableName) -> ConnectError:
    """Return the error of a table that cannot be compared."""
    return ConnectError(f"Table {name} has no key: its rows cannot be compared with a topic.")


@dataclass
class Difference:
    """The keys that differ, at most MOST_NAMED of each kind, and how many there are."""

    missing: list[str] = field(default_factory=list)
    """Rows of the table that the topic does not have."""
    unexpected: list[str] = field(default_factory=list)
    """Rows of the topic that the table does not have."""
    changed: list[str] = field(default_factory=list)
    rows: int = 0
    ranges: int = 0
    """The ranges of keys that differ, of RANGES."""

    @property
    def equal(self) -> bool:
        """Whether table and topic have the same rows."""
        return not (self.missing or self.unexpected or self.changed)


def canonical(value: Any) -> str:
    """Return JSON with a fixed order of fields."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(value)


class Side:
    """The rows of a table or a topic: keys with hashes, in ranges of the hash of the key."""

    def __init__(self) -> None:
        self._ranges: list[dict[str, bytes]] = [{} for _ in range(RANGES)]

    def put(self, key: str, row: Any) -> None:
        """Take a row, or None for a deleted one."""
        place = self._ranges[_range_of(key)]
        if row is None:
            place.pop(key, None)
        else:
            place[key] = hashlib.blake2b(canonical(row).encode(), digest_size=8).digest()

    def __len__(self) -> int:
        return sum(map(len, self._ranges))

    def digests(self) -> list[int]:
        """Return a hash of each range, which does not depend on the order of its rows."""
        return [_digest(each.items()) for each in self._ranges]

    def rows(self, number: int) -> Mapping[str, bytes]:
        """Return keys and hashes of a range."""
        return self._ranges[number]


def _range_of(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=2).digest(), "big") % RANGES


def _digest(rows: Iterable[tuple[str, bytes]]) -> int:
    total = 0
    for key, row in rows:
        total ^= int.from_bytes(hashlib.blake2b(key.encode(), key=row, digest_size=16).digest(), "big")
    return total


def compare(table: Side, topic: Side) -> Difference:
    """Compare ranges by their hash, then the rows of those that differ."""
    found = Difference(rows=len(table))
    for number, (a, b) in enumerate(zip(table.digests(), topic.digests(), strict=True)):
        if a == b:
            continue
        found.ranges += 1
        own, other = table.rows(number), topic.rows(number)
        for key in sorted(own.keys() | other.keys()):
            if key not in other:
                _name(found.missing, key)
            elif key not in own:
                _name(found.unexpected, key)
            elif own[key] != other[key]:
                _name(found.changed, key)
    return found


def _name(names: list[str], key: str) -> None:
    if len(names) < MOST_NAMED:
        names.append(key)


def event_row(event: Mapping[str, Any] | None) -> Any:
    """Return the row after an event: of an envelope, of a flat row, or None for a deleted row."""
    if event is None:
        return None
    if "op" in event and "after" in event:
        return event["after"]
    return event


def verify(
    name: TableName,
    table_rows: Callable[[], Rows],
    topic_rows: Callable[[], Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]],
    *,
    rounds: int = 3,
    progress: Progress = lambda _: None,
) -> Difference:
    """Compare a table with its topic.

    `topic_rows` reads the topic from its start to its current end: keys and values as the converter returns them, None
    for a tombstone. A difference is read again, up to `rounds` times, as the task may not have emitted it yet. Raises
    ConnectError.
    """
    found = Difference()
    for number in range(1, rounds + 1):
        table, topic = Side(), Side()
        for key, row in table_rows():
            table.put(canonical(key), row)
        progress(f"Round {number}: {len(table)} rows of {name}")
        for given, event in topic_rows():
            topic.put(canonical(given), event_row(event))
        progress(f"Round {number}: {len(topic)} rows in the topic")
        found = compare(table, topic)
        if found.equal:
            break
        progress(f"Round {number}: {found.ranges} of {RANGES} ranges differ")
        if number < rounds:
            time.sleep(ROUND_S)
    return found
