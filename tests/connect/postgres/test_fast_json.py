"""Records as bytes are byte by byte what JsonConverter writes, for every type, with and without schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.connect.converters.json import JsonConverter
from ottla.connect.records import EncodedRecord, SourceRecord
from tests.connect.capturing import Capture
from tests.connect.postgres.driver import Database

SCRIPTS = Path(__file__).parent
# Events of two runs differ in the time of processing, and in the time and the position of the snapshot.
TIMES = re.compile(rb'"(ts_ms|ts_us|ts_ns|lsn|sequence)":("\[[^]]*\]"|-?[0-9]+)')


def converters(schemas: str) -> tuple[JsonConverter, JsonConverter]:
    key, value = JsonConverter(), JsonConverter()
    key.configure({"schemas.enable": schemas}, is_key=True)
    value.configure({"schemas.enable": schemas}, is_key=False)
    return key, value


def encoded(records: list[SourceRecord], schemas: str) -> list[tuple[str, bytes | None, bytes | None]]:
    key, value = converters(schemas)
    found = []
    for each in records:
        pair = each.key, each.value
        if not isinstance(each, EncodedRecord):
            pair = (
                key.from_connect(each.topic, each.key_schema, each.key),
                value.from_connect(each.topic, each.value_schema, each.value),
            )
        found.append((each.topic, pair[0], None if pair[1] is None else TIMES.sub(b"", pair[1])))
    return found


def changed(database: Database) -> None:
    with database.server.connect(database.name) as connection:
        for statement in (SCRIPTS / "every_change.sql").read_text().split(";\n"):
            if statement.strip():
                connection.execute(statement)
        connection.execute("insert into nokey values (8, E'\\x1f')")


def drained(capture: Capture, count: int) -> list[SourceRecord]:
    capture.until(lambda: len(capture.kafka.records) >= count)
    for _ in range(3):
        capture.poll()
    return capture.kafka.records


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_bytes_are_the_converters(database: Database, schemas: str) -> None:
    database.sql((SCRIPTS / "every_type.sql").read_text())
    database.sql("insert into nokey select g, 'row ' || g from generate_series(2, 5) g")
    database.sql("insert into nokey values (6, E'\\x1f control'), (7, 'last')")
    slot = f"other_{database.name}"
    plain = database.capture(slot_name=slot)
    fast = database.capture(converters=converters(schemas))
    drained(plain, 15)
    drained(fast, 15)
    changed(database)
    expected = encoded(drained(plain, 35), schemas)
    found = drained(fast, 35)
    assert encoded(found, schemas) == expected
    assert sum(isinstance(each, EncodedRecord) for each in found) > 10
    plain.stop()
    with database.server.connect(database.name) as connection:
        connection.execute(f"select pg_drop_replication_slot('{slot}') from pg_sleep(0.3)")
