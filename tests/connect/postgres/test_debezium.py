"""Debezium reads the same database at the same time: keys, values and schemas of all events are the same.

`known` has the differences that docs/postgres.md names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connect.debezium_events import differences, ours, require_debezium, without
from tests.connect.postgres.driver import Database
from tests.peers.debezium import DebeziumEngine, Event

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]
SCRIPTS = Path(__file__).parent
SNAPSHOT_EVENTS = 12
# Times differ by nature; the version is ours; the positions of snapshots are of two snapshots.
ALWAYS = frozenset({"version", "ts_ms", "ts_us", "ts_ns", "xmin"})
SNAPSHOT = ALWAYS | {"lsn", "txId", "sequence"}
# PostgreSQL 15 does not publish generated columns, so that Debezium has them in snapshots only.
GENERATED = "b"


@pytest.fixture
def debezium(database: Database, tmp_path: Path) -> Iterator[DebeziumEngine]:
    require_debezium()
    database.sql((SCRIPTS / "every_type.sql").read_text())
    slot = f"debezium_{database.name}"
    config = database.config(
        slot_name=slot, publication_name=slot, provide_transaction_metadata="true", skipped_operations="none"
    )
    config["plugin.name"] = "pgoutput"
    del config["connector.class"]
    with DebeziumEngine(tmp_path, config) as engine:
        yield engine


def comparable(event: Event) -> Event:
    """Take out what cannot be the same."""
    value = event.value
    if value is None:
        return event
    payload = value["payload"]
    read = payload.get("op") == "r"
    payload = without(payload, SNAPSHOT if read else ALWAYS)
    collections = payload.get("data_collections")
    if collections:
        payload["data_collections"] = sorted(
            (
                "message" if "LogicalDecodingMessage" in each["data_collection"] else each["data_collection"],
                each["event_count"],
            )
            for each in collections
        )
    row = payload.get("after")
    if row is not None and event.topic.endswith(".every"):
        row.pop("nm")  # Debezium's stream has null for the type name
        row.pop("ai2")  # Debezium has nulls for arrays of several dimensions
        if read:
            row.pop("da"), row.pop("da2")  # its snapshot has other numbers for infinity and for years before 1582
    schema = value["schema"]
    if read and event.topic.endswith(".gen"):
        row.pop(GENERATED, None)
        schema = without_generated(schema)
    return Event(event.topic, event.key, {"schema": schema, "payload": payload})


def without_generated(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_generated(each) for name, each in schema.items()}
    if isinstance(schema, list):
        return [
            without_generated(each)
            for each in schema
            if not (isinstance(each, dict) and each.get("field") == GENERATED)
        ]
    return schema


def test_events_are_debeziums(database: Database, debezium: DebeziumEngine) -> None:
    capture = database.capture(provide_transaction_metadata="true", skipped_operations="none")
    theirs = debezium.take(SNAPSHOT_EVENTS)
    capture.until(lambda: len(capture.kafka.records) >= SNAPSHOT_EVENTS - 2)
    capture.poll()
    with database.server.connect(database.name) as connection:
        for statement in (SCRIPTS / "every_change.sql").read_text().split(";\n"):
            if statement.strip():
                connection.execute(statement)
    theirs += debezium.take(70)
    # Debezium reads a partitioned table and its partitions, and so each row twice.
    theirs = [each for each in theirs if each.topic != "p.public.parted"]
    capture.until(lambda: len(capture.kafka.records) >= len(theirs))
    found = ours(capture.kafka.records)
    assert [each.topic for each in found] == [each.topic for each in theirs]
    for number, (own, their) in enumerate(zip(found, theirs, strict=True)):
        own_now, their_now = comparable(own), comparable(their)
        assert own_now.key == their_now.key, number
        assert own_now.value == their_now.value, (number, own_now.topic, differences(their_now.value, own_now.value))
