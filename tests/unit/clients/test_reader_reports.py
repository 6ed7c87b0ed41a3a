import random

import pytest

from ottla.clients.reader_reports import MOST_BYTES, PREFIX, described, metadata_of, read_reports
from ottla.schemas.model import Reference, Schema, SchemaType


class Reader:
    def __init__(self, schema):
        self._schema = schema

    def describe_reader(self, part):
        return None if self._schema is None else described(f"{{topic}}-{part}", self._schema)


SCHEMA = Schema(SchemaType.AVRO, '"string"', (Reference("a", "b", 3),))


def test_report_survives_the_metadata_of_an_offset():
    (report,) = read_reports(metadata_of({"key": Reader(None), "value": Reader(SCHEMA)}))
    assert (report.part, report.subject, report.schema) == ("value", "{topic}-value", SCHEMA)


def test_no_report_without_a_reader_schema():
    assert metadata_of({"key": None, "value": Reader(None)}) == ""
    assert metadata_of({"value": len}) == ""


def test_large_schema_is_reported_without_its_text():
    text = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz", k=20_000))
    metadata = metadata_of({"value": Reader(Schema(SchemaType.AVRO, text))})
    assert len(metadata) <= MOST_BYTES
    (report,) = read_reports(metadata)
    assert (report.subject, report.schema) == ("{topic}-value", None)


@pytest.mark.parametrize(
    "metadata", ["", "of a program", PREFIX, f"{PREFIX}%", f"{PREFIX}AAAA", f"{PREFIX}eJyLjgUAARUAuQ=="]
)
def test_other_metadata_has_no_reports(metadata):
    assert read_reports(metadata) == []
