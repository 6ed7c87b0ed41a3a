"""PostgreSQL's texts: times of all years, arrays, hstore, numbers, names and filters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.connectors.capture.filters import Filters, faults, hashing
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.connectors.postgres import literals, temporal
from ottla.connect.connectors.postgres.copying import rows_of
from ottla.connect.connectors.postgres.settings import Options, unsupported
from ottla.connect.connectors.postgres.visibility import Borders, Visible

REQUIRED = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def options(**settings: str) -> Options:
    return Options.of({**REQUIRED, **{name.replace("_", "."): value for name, value in settings.items()}})


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))  # noqa: DTZ001
def test_timestamps(given: datetime) -> None:
    text = given.isoformat(sep=" ")
    expected = (given.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert temporal.micros(text) == expected
    assert temporal.micros(text + "+00") == expected
    assert temporal.micros(text + "-03:30") == expected + 12_600_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("infinity", 9_223_372_036_825_200_000),
        ("-infinity", -9_223_372_036_832_400_000),
        ("0044-03-15 01:02:03 BC", -63_517_820_277_000_000),
        ("0001-01-01 00:00:00", -62_135_596_800_000_000),
        ("0001-12-31 00:00:00 BC", -62_135_683_200_000_000),
        ("12345-01-01 00:00:00", 327_403_382_400_000_000),
    ],
)
def test_timestamps_beyond_pythons_years(text: str, expected: int) -> None:
    assert temporal.micros(text) == expected


@given(st.integers(-1_000_000_000, 1_000_000_000))
def test_calendar_has_an_inverse(days: int) -> None:
    assert temporal.days_of(*temporal.civil_of(days)) == days


@pytest.mark.parametrize(
    ("text", "digits", "expected"),
    [
        ("2021-03-04 04:06:07.12+00", 6, "2021-03-04T04:06:07.120000Z"),
        ("2021-03-04 04:06:07+00", 6, "2021-03-04T04:06:07.000000Z"),
        ("2021-03-04 04:06:07.1+00", 3, "2021-03-04T04:06:07.100Z"),
        ("2021-03-04 04:06:07+00", 0, "2021-03-04T04:06:07Z"),
        ("12345-01-01 00:00:00+00", 6, "+12345-01-01T00:00:00.000000Z"),
        ("-infinity", 6, "-infinity"),
    ],
)
def test_timestamps_with_zone(text: str, digits: int, expected: str) -> None:
    assert temporal.iso_stamp(text, digits) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:34:56.5+02", "10:34:56.5Z"),
        ("24:00:00+00", "24:00:00Z"),
        ("00:30:00+01", "23:30:00Z"),
        ("01:00:00-05:30:15", "06:30:15Z"),
    ],
)
def test_times_with_zone(text: str, expected: str) -> None:
    assert temporal.iso_zoned_time(text) == expected


def test_intervals() -> None:
    assert temporal.interval_micros("P1Y2M3DT4H5M6.789S") == 37_091_106_789_000
    assert temporal.interval_micros("P-1M2DT-1.5S") == -2_457_001_500_000
    assert temporal.interval_iso("P1Y2M3DT4H5M6.789S") == "P1Y2M3DT4H5M6.789S"
    assert temporal.interval_iso("PT0S") == "P0Y0M0DT0H0M0S"


ITEM = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)


@given(st.lists(st.one_of(st.none(), ITEM), max_size=6))
def test_arrays(items: list[str | None]) -> None:
    quoted = ["NULL" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in items]
    assert literals.array("{" + ",".join(quoted) + "}", str) == items


def test_arrays_in_other_forms() -> None:
    assert literals.array("{1,NULL,3}", int) == [1, None, 3]
    assert literals.array("[0:1]={1,2}", int) == [1, 2]
    assert literals.array("{{1,2},{3,4}}", int) == [1, 2, 3, 4]
    assert literals.array('{"NULL",null}', str) == ["NULL", None]
    assert literals.array("{}", str) == []


@given(st.decimals(-(10**18), 10**18, places=6))
def test_variable_decimals(number: Decimal) -> None:
    found = literals.variable_decimal(format(number, "f"))
    assert found is not None
    assert Decimal(int.from_bytes(found["value"], "big", signed=True)).scaleb(-found["scale"]) == number
    assert found["scale"] == 0 or int.from_bytes(found["value"], "big", signed=True) % 10


@given(st.integers(-(2**70), 2**70))
def test_unscaled_bytes_are_the_fewest(number: int) -> None:
    data = literals.unscaled(number)
    assert int.from_bytes(data, "big", signed=True) == number
    if len(data) > 1:
        assert not -(2 ** (8 * (len(data) - 1) - 1)) <= number < 2 ** (8 * (len(data) - 1) - 1)


def test_money_and_bits_and_hstore() -> None:
    assert literals.money("-$1,234,567.89", 2) == Decimal("-1234567.89")
    assert literals.bits("10101") == b"\x15"
    assert literals.bits("00000") == b""
    assert literals.hstore('"a"=>"1", "b"=>NULL, "c d"=>"x\\"y"') == {"a": "1", "b": None, "c d": 'x"y'}


@given(st.lists(st.lists(st.one_of(st.none(), ITEM), min_size=1, max_size=4), max_size=5))
def test_rows_of_copy(rows: list[list[str | None]]) -> None:
    def escaped(text: str | None) -> str:
        if text is None:
            return "\\N"
        for plain, letter in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            text = text.replace(plain, letter)
        return text

    data = "".join("\t".join(map(escaped, row)) + "\n" for row in rows).encode()
    assert rows_of(data) == rows


def test_visibility_of_transactions() -> None:
    seen = Visible.of("100:110:103,105", 5000)
    assert [xid for xid in range(98, 113) if seen.has(xid)] == [98, 99, 100, 101, 102, 104, 106, 107, 108, 109]
    wrapped = Visible.of(f"{2**32 + 5}:{2**32 + 9}:{2**32 + 6}", 1)
    assert wrapped.has(2**32 - 1)
    assert wrapped.has(5)
    assert not wrapped.has(6)
    assert not wrapped.has(9)


def test_borders_end_where_their_snapshot_was_taken() -> None:
    borders = Borders()
    borders.add(Visible.of("100:110:", 5000), ["public.a"])
    again = Borders(borders.stored())
    assert again.seen(99, 4000) == {"public.a"}
    assert again.seen(111, 4000) == frozenset()
    assert again.seen(99, 6000) == frozenset()
    assert again.passed(5000)
    assert not again


def test_names_of_topics_and_schemas() -> None:
    assert Names(options()).topic("public", "Odd Näme") == "p.public.Odd_N_me"
    assert Names(options(schema_name_adjustment_mode="avro")).schema("p.1a.b-c") == "p._1a.b_c"
    assert Names(options(field_name_adjustment_mode="avro_unicode")).field("ü") == "_u00fc"


def test_filters() -> None:
    filters = Filters(options(table_include_list="public\\.a.*, other\\.B", column_exclude_list="public.a.secret"))
    assert filters.captures("public", "abc")
    assert filters.captures("OTHER", "b")
    assert not filters.captures("public", "b")
    assert not filters.has_column("public.a", "secret")
    keys = Filters(options(message_key_columns="public.(.*):id,k.*;x.y:z"))
    assert keys.key("public.t", ["a", "k1", "id", "k2"]) == ("id", "k1", "k2")
    assert keys.key("other.t", ["id"]) is None


def test_hidden_columns() -> None:
    raw = {"column.mask.with.3.chars": "public.t.a", "column.truncate.to.2.chars": "public.t.b"}
    filters = Filters(Options.of({**REQUIRED, **raw}))
    change_a, change_b = filters.change("public.t", "a"), filters.change("public.t", "b")
    assert change_a is not None
    assert change_b is not None
    assert (change_a("xyz"), change_b("xyz")) == ("***", "xy")
    assert filters.change("public.t", "c") is None
    assert hashing("SHA-256", "salt", whole=True)("x") == hashing("SHA-256", "salt", whole=True)("x")


def test_faults_of_settings_are_named() -> None:
    assert list(faults(options(table_include_list="("))) == ["table.include.list"]
    assert "exclude each other" in faults(options(table_include_list="a", table_exclude_list="b"))["table.exclude.list"]
    assert "Java" in unsupported({"converters": "x"})["converters"]
    assert "kafka" in unsupported({"signal.enabled.channels": "source,kafka"})["signal.enabled.channels"]
