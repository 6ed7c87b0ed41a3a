"""SimpleHeaderConverter: texts of values, and the values of texts."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.converters.headers import SimpleHeaderConverter
from ottla.connect.data import Schema
from ottla.connect.errors import DataError

HEADERS = SimpleHeaderConverter()


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ("plain text", data.STRING, "plain text"),
        (True, None, "true"),
        (1.5, data.FLOAT64, "1.5"),
        (0.10000000149011612, data.FLOAT32, "0.1"),
        (1e10, None, "1.0E10"),
        (Decimal("1.50"), data.decimal(2), "1.50"),
        (b"ab", data.BYTES, "YWI="),
        (["a", 'b"\\', None], None, '["a","b\\"\\\\",null]'),
        ({"a": 1, "b": [True]}, None, '{"a":1,"b":[true]}'),
        ({"x": 1}, data.struct({"x": data.INT32, "y": data.OPTIONAL_STRING}), '{"x":1,"y":null}'),
        (datetime(2024, 5, 6, 7, 8, 9, 123456, UTC), data.timestamp(), "2024-05-06T07:08:09.123Z"),
        (date(2024, 5, 6), data.date(), "2024-05-06"),
        (time(7, 8, 9), data.time_of_day(), "07:08:09.000Z"),
    ],
)
def test_value_is_written_as_kafka_writes_it(value: Any, schema: Schema | None, text: str) -> None:
    assert HEADERS.from_header("t", "h", schema, value) == text.encode()


@pytest.mark.parametrize("value", ["text", True, 7, -40000, 1.5, [1, 2], {"a": 1}, date(2024, 5, 6)])
def test_what_is_written_is_read(value: Any) -> None:
    assert HEADERS.to_header("t", "h", HEADERS.from_header("t", "h", None, value)).value == value


def test_null_has_no_bytes() -> None:
    assert HEADERS.from_header("t", "h", None, None) is None
    assert HEADERS.to_header("t", "h", None) == (None, None)


def test_value_without_a_text_names_the_header() -> None:
    with pytest.raises(DataError, match="The header h has no text: Failed to serialize unexpected value type set"):
        HEADERS.from_header("t", "h", None, {1})
