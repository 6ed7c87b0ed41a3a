"""Dates and literals as Java writes and reads them. tests/connect/transforms compares more with Java itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect import data
from ottla.connect.converters.date_format import DateFormat
from ottla.connect.converters.literals import parsed

MOMENTS = st.integers(0, 4_000_000_000_000).map(
    lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)


@given(MOMENTS, st.sampled_from(["yyyy-MM-dd'T'HH:mm:ss.SSSX", "yyyyMMddHHmmssSSS", "d MMM yyyy h:mm:ss.SSS a"]))
def test_written_date_is_read_again(moment: datetime, pattern: str) -> None:
    dates = DateFormat(pattern)
    assert dates.parse(dates.format(moment)) == moment


@pytest.mark.parametrize(("pattern", "text"), [("yyyy", "x"), ("yyyy-MM", "2024/05"), ("MMM", "Foo"), ("a", "noon")])
def test_date_that_does_not_fit_is_an_error(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match="Unparseable"):
        DateFormat(pattern).parse(text)


@pytest.mark.parametrize("pattern", ["q", "yyyy'", "'a", "f"])
def test_wrong_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"Illegal pattern|Unterminated quote"):
        DateFormat(pattern)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("127", data.INT8, 127),
        ("128", data.INT16, 128),
        ("1e3", data.INT16, 1000),
        ("9223372036854775808", data.decimal(0), Decimal(9223372036854775808)),
        ("1.5", data.FLOAT32, 1.5),
        ("2024-05-06", data.date(), date(2024, 5, 6)),
        ("[1, 300]", data.array(data.INT16), [1, 300]),
        ('{"a": [true]}', data.mapping(data.STRING, data.array(data.BOOLEAN)), {"a": [True]}),
        ("null", None, None),
        (" a ", data.STRING, " a "),
    ],
)
def test_literal_has_its_smallest_type(text: str, schema: data.Schema | None, value: object) -> None:
    assert parsed(text) == (schema, value)


@given(st.text(alphabet='[]{}",: 1ae.-null\\', max_size=40))
def test_each_text_is_a_literal(text: str) -> None:
    schema, value = parsed(text)
    assert schema is not None or value is None


def test_deep_literal_is_a_string() -> None:
    assert parsed("[" * 10_000 + "]" * 10_000)[0] == data.STRING
