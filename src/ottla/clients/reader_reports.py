"""Reports of reader schemas: which schema a consumer group reads the values of a topic with.

A consumer whose deserializer has a reader's schema commits the schema with its offsets, as their metadata. So the
report survives restarts of the consumer, the broker and the registry, needs no topic, no rights and no request of its
own, and every broker stores it. `ottla schema check --consumers` reads the reports. Offsets that the program commits
with metadata of its own have no report. Offsets in transactions have it if the producer gets the `group_metadata()` of
the consumer. Share groups have no committed offsets, and so no report.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.schemas.model import Reference, Schema, SchemaType

PREFIX: Final = "ottla.readers.1:"
MOST_BYTES: Final = 3_000
"""The largest report. A broker accepts 4,096 bytes (offset.metadata.max.bytes)."""
_MOST_JSON: Final = 1 << 20
TOPIC: Final = "{topic}"


class ReaderReport(NamedTuple):
    """The reader's schema of a part of the records. `subject` may contain `{topic}`; `schema` is None if too large."""

    part: str
    subject: str
    schema: Schema | None


def metadata_of(deserializers: Mapping[str, object]) -> str:
    """Return the metadata for commits of a consumer with these deserializers, by part; "" if none has a schema."""
    rows = {}
    for part, each in deserializers.items():
        describe = getattr(each, "describe_reader", None)
        described = None if describe is None else describe(part)
        if described is not None:
            rows[part] = described
    if not rows:
        return ""
    text = _encoded(rows)
    return (
        text if len(text) <= MOST_BYTES else _encoded({part: {"subject": row["subject"]} for part, row in rows.items()})
    )


def described(subject: str, schema: Schema) -> dict[str, Any]:
    """Return a reader's schema as a part of a report."""
    references = [reference._asdict() for reference in schema.references]
    return {"subject": subject, "type": schema.type.value, "schema": schema.text, "references": references}


def _encoded(rows: Mapping[str, Any]) -> str:
    packed = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 9)
    return PREFIX + base64.b64encode(packed).decode()


def read_reports(metadata: str) -> list[ReaderReport]:
    """Return the reports in the metadata of a committed offset; none if it has other contents."""
    if not metadata.startswith(PREFIX):
        return []
    try:
        packed = base64.b64decode(metadata.removeprefix(PREFIX), validate=True)
        rows = json.loads(zlib.decompressobj().decompress(packed, _MOST_JSON))
        return [_report(part, row) for part, row in rows.items()]
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError, AttributeError):
        return []


def _report(part: str, row: Mapping[str, Any]) -> ReaderReport:
    schema = None
    if "schema" in row:
        references = tuple(Reference(**each) for each in row["references"])
        schema = Schema(SchemaType(row["type"]), str(row["schema"]), references)
    return ReaderReport(part, str(row["subject"]), schema)
