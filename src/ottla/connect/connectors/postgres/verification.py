"""Compares a table with its topic: a hash for each range of the key, and the rows of ranges that differ.

The topic is read once, in the order of its records; of each row a hash of 8 bytes and its key stay in memory. The table
is read from one snapshot. Changes that the task has not emitted yet would be differences: the caller reads the topic
after the slot has passed the snapshot, or compares the differing keys again (`verify` does, for a number of rounds).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.catalog import Catalog, Table
from ottla.connect.connectors.postgres.copying import copy_blocks, rows_of
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.session import connect, errors
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.snapshots import query_of
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    import psycopg

RANGES: Final = 1024
MOST_NAMED: Final = 100
ROUND_S: Final = 2.0

Rows = Iterator[tuple[str, Any]]
Progress = Callable[[str], None]
Converted = Callable[[tuple[Any, Any], tuple[Any, Any]], tuple[Any, Any]]


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


def _as_it_is(key: tuple[Any, Any], value: tuple[Any, Any]) -> tuple[Any, Any]:
    return key[1], value[1]


def table_rows(config: Mapping[str, str], name: str, converted: Converted = _as_it_is) -> Rows:
    """Yield keys and rows of a table, as its events have them. Raises ConnectError."""
    options = Options.of(config)
    maker = EventMaker(options)
    connection = connect(options)
    try:
        with errors(options, f"read {name}"):
            catalog = Catalog(connection, options)
            table = next((each for each in catalog.tables() if each.full_name == name), None)
            if table is None:
                raise ConnectError(f"Table {name} does not exist in {options.text('database.dbname')}.")
            events = _keyed(maker, catalog, table)
            yield from _rows(connection, events, converted)
    finally:
        connection.close()


def _keyed(maker: EventMaker, catalog: Catalog, table: Table) -> TableEvents:
    events = maker.table(table, catalog.types([each.type_oid for each in table.columns]))
    if events.encoder.key is None:
        raise ConnectError(f"Table {table.full_name} has no key: its rows cannot be compared with a topic.")
    return events


def _rows(connection: psycopg.Connection[Any], events: TableEvents, converted: Converted) -> Rows:
    key_of, encode = events.encoder.key, events.encoder.slow
    assert key_of is not None
    for block in copy_blocks(connection, query_of(events)):
        for texts in rows_of(block):
            row = encode(texts)
            key, value = converted((events.key_schema, key_of(row)), (events.value_schema, row))
            yield canonical(key), value


def event_row(event: Mapping[str, Any] | None) -> Any:
    """Return the row after an event: of an envelope, of a flat row, or None for a deleted row."""
    if event is None:
        return None
    if "op" in event and "after" in event:
        return event["after"]
    return event


def verify(
    config: Mapping[str, str],
    name: str,
    topic_rows: Callable[[], Iterable[tuple[Mapping[str, Any], Mapping[str, Any] | None]]],
    *,
    rounds: int = 3,
    progress: Progress = lambda _: None,
    converted: Converted = _as_it_is,
) -> Difference:
    """Compare a table (SCHEMA.TABLE) with its topic.

    `topic_rows` reads the topic from its start to its current end: keys and values as the converter returns them, None
    for a tombstone. `converted` does to keys and rows of the table (schemas with values) what the converters did to
    the records of the topic. A difference is read again, up to `rounds` times, as the task may not have emitted it yet.
    Raises ConnectError.
    """
    found = Difference()
    for number in range(1, rounds + 1):
        table, topic = Side(), Side()
        for key, row in table_rows(config, name, converted):
            table.put(key, row)
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
