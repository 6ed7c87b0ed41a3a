"""Schemas that the events of all databases share, and heartbeats."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from ottla.connect import data
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.data import Schema, Type, struct
from ottla.connect.records import Position, SourceRecord

_SNAPSHOTS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
SNAPSHOT: Final = Schema(
    Type.STRING, True, "io.debezium.data.Enum", 1, default="false", parameters={"allowed": _SNAPSHOTS}
)
BLOCK: Final = replace(
    struct(
        {"id": data.STRING, "total_order": data.INT64, "data_collection_order": data.INT64},
        "event.block",
        optional=True,
    ),
    version=1,
)
HEARTBEAT_KEY: Final = replace(
    struct({"serverName": data.STRING}, "io.debezium.connector.common.ServerNameKey"), version=1
)
HEARTBEAT: Final = replace(struct({"ts_ms": data.INT64}, "io.debezium.connector.common.Heartbeat"), version=1)


def envelope(value: Schema, source: Schema, name: str) -> Schema:
    """Return the schema of the events of a table; source: the schema of the source block."""
    fields = {"before": value, "after": value, "source": source, "transaction": BLOCK, "op": data.STRING}
    times = dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), data.OPTIONAL_INT64)
    return replace(struct({**fields, **times}, name), version=2)


def heartbeat(names: Names, server: str, partition: Position, offset: Position) -> SourceRecord:
    """Return a heartbeat, which has the current position as its offset."""
    key, value = {"serverName": server}, {"ts_ms": time.time_ns() // 1_000_000}
    return SourceRecord(names.heartbeat, None, HEARTBEAT_KEY, key, HEARTBEAT, value, None, [], partition, offset)
