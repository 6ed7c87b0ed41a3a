"""JSON to columns and back, compiled and as plain Python, compared with json, float, Decimal and datetime."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
import struct
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ottla.clients.arrow_columns import array_of, plan_of
from ottla.serde import _json, _json_writer, _views
from tests.conftest import DRAWN_EXAMPLES
from tests.unit.serde.plain import plain

READERS = [(_json, _views), (plain("_json"), plain("_views"))]
WRITERS = [(_json_writer, _views), (plain("_json_writer"), plain("_views"))]
both = pytest.mark.parametrize("modules", READERS, ids=["built", "plain"])
both_writers = pytest.mark.parametrize("modules", WRITERS, ids=["built", "plain"])
some = settings(deadline=None, max_examples=DRAWN_EXAMPLES)
Modules = tuple[ModuleType, ModuleType]


def read(modules: Modules, kind: Any, texts: list[bytes | None]) -> tuple[list[Any], list[Any]]:
    """Decode rows of that type; return them and the bad rows. Each text has its own buffer without extra bytes."""
    rows, bad = [], []
    for text in texts:
        ends = struct.pack("<ii", 0, len(text or b""))
        view = modules[1].ByteRows(1, 0, b"\0" if text is None else None, ends, text or b"", False)
        column, wrong = modules[0].decode(plan_of(kind), view)
        array = array_of(kind, column)
        array.validate(full=True)
        rows += array.to_pylist()
        bad += wrong
    return rows, bad


def value(modules: Modules, kind: Any, text: str) -> Any:
    """Decode a field of that type; return its value, or the problem with it."""
    rows, bad = read(modules, pa.struct([("a", kind)]), [b'{"a":%s}' % text.encode()])
    return bad[0].problem if bad else rows[0]["a"]


UTC = dt.UTC
MOMENT = pa.timestamp("us", "UTC")
BAD = "is "  # the beginning of each problem


@both
@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.int32(), "-0", 0),
        (pa.int32(), "2147483648", BAD),
        (pa.int8(), "-128", -128),
        (pa.int8(), "128", BAD),
        (pa.int16(), "32768", BAD),
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int64(), "-9223372036854775809", BAD),
        (pa.int64(), "9223372036854775808", BAD),
        (pa.int64(), "18446744073709551617", BAD),
        (pa.int32(), "1e3", BAD),
        (pa.int32(), "1.0", BAD),
        (pa.int32(), '"1"', BAD),
        (pa.bool_(), "true", True),
        (pa.bool_(), '"true"', BAD),
        (pa.float64(), "-0", 0.0),
        (pa.float64(), "1e400", BAD),
        (pa.float64(), '"+INF"', math.inf),
        (pa.float64(), "-Infinity", -math.inf),
        (pa.float64(), '"INF"', BAD),
        (pa.float64(), '"1.5"', BAD),
        (pa.float32(), "1e39", BAD),
        (pa.float32(), "1.1", struct.unpack("<f", struct.pack("<f", 1.1))[0]),
        (pa.decimal128(5, 2), "1.555", Decimal("1.56")),
        (pa.decimal128(5, 2), "-1.545", Decimal("-1.55")),
        (pa.decimal128(5, 2), "999.995", BAD),
        (pa.decimal128(5, 2), '"1.5"', Decimal("1.50")),
        (pa.decimal128(5, 2), '"+01.5"', Decimal("1.50")),
        (pa.decimal128(5, 2), '"1_0"', BAD),
        (pa.decimal128(5, 2), '" 1"', BAD),
        (pa.decimal128(5, 2), '"NaN"', BAD),
        (pa.decimal128(5, 2), "1e-999999999999", Decimal("0.00")),
        (pa.decimal128(5, 2), "1e999999999999", BAD),
        (pa.string(), "1.50", "1.5"),
        (pa.string(), "-0", "0"),
        (pa.string(), "1e3", "1000.0"),
        (pa.string(), "1e10", "1.0E10"),
        (pa.string(), "123456789012345678901234567890", "123456789012345678901234567890"),
        (pa.string(), "NaN", '"NaN"'),
        (pa.string(), "'x'", "x"),
        (pa.string(), '{"b": [1, 2.50] , "c":null}', '{"b":[1,2.5],"c":null}'),
        (pa.string(), '[ "\\u00e9\\/" , "\\n" ]', '["é/","\\n"]'),
        (pa.string(), "['say \"x\"']", '["say \\"x\\""]'),
        (pa.string(), '"\\ud83d\\ude00\\ud83dx\\ude00"', "😀?x?"),
        (pa.date32(), '"2013-2-3"', dt.date(2013, 2, 3)),
        (pa.date32(), '"2013-02-30"', BAD),
        (pa.date32(), '"2012-02-29"', dt.date(2012, 2, 29)),
        (pa.date32(), '"1900-02-29"', BAD),
        (pa.date32(), '"2013-02"', dt.date(2013, 2, 1)),
        (pa.date32(), '"2013-02-03T10:00:00"', dt.date(2013, 2, 3)),
        (pa.date32(), "15000", BAD),
        (MOMENT, '"2013-01-01T05:00:00.5+01:00"', dt.datetime(2013, 1, 1, 4, 0, 0, 500_000, UTC)),
        (MOMENT, '" 2013-01-01 05:00 "', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        (MOMENT, '"2013-01-01T05:00:00.1234567Z"', dt.datetime(2013, 1, 1, 5, 0, 0, 123_456, UTC)),
        (MOMENT, '"2013-01-01T05:00:00-0130"', dt.datetime(2013, 1, 1, 6, 30, tzinfo=UTC)),
        (MOMENT, '"2013-01-01T05:00:00 UTC"', dt.datetime(2013, 1, 1, 5, tzinfo=UTC)),
        (MOMENT, '"2013-01-01T24:00:00"', BAD),
        (MOMENT, '"2013-01-01T05:00:00+19:00"', BAD),
        (MOMENT, '"2013-01-01T05:00:00,5Z"', BAD),
        (MOMENT, '"2013-01-01T"', BAD),
        (MOMENT, '"999999-01-01"', BAD),
        (MOMENT, "-1", dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (MOMENT, "9223372036854775807", BAD),
        (MOMENT, "1.5", BAD),
        (pa.timestamp("us"), '"2013-01-01T05:00:00"', dt.datetime(2013, 1, 1, 5)),
        (pa.timestamp("us"), '"2013-01-01T05:00:00Z"', BAD),
        (pa.timestamp("us"), "5", BAD),
        (pa.binary(), '"AAE="', b"\0\1"),
        (pa.binary(), '"\\/\\/8="', b"\xff\xff"),
        (pa.binary(), '"AAEC\\r\\nAA=="', b"\0\1\2\0"),
        (pa.binary(), '"AAE"', BAD),
        (pa.binary(), '"AA=A"', BAD),
        (pa.binary(), '"AA==AAAA"', BAD),
        (pa.binary(), '"__8="', BAD),
        (pa.list_(pa.int32()), "[1,null , 2]", [1, None, 2]),
        (pa.list_(pa.int32()), "{}", BAD),
        (pa.list_(pa.int32()), "[1,]", BAD),
        (pa.map_(pa.string(), pa.int32()), '{"x":1,"y":null,"\\u0078":3}', [("x", 3), ("y", None)]),
        (pa.struct([("b", pa.int32())]), '{"b":1,"c":{},"b":null}', {"b": None}),
        (pa.struct([("b", pa.int32())]), "[]", BAD),
        (pa.struct([('"', pa.int32())]), '{"\\"":1}', {'"': 1}),
    ],
)
def test_json_values_become_expected_column_values(modules: Modules, kind: Any, text: str, expected: Any) -> None:
    found = value(modules, kind, text)
    if expected == BAD:
        assert isinstance(found, str)
        assert found.startswith(BAD)
    else:
        assert found == expected
        assert not isinstance(expected, float) or math.copysign(1, found) == math.copysign(1, expected)


@both
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a":1}x', "is not JSON"),
        (b'{"a":1,}', "is not JSON"),
        (b'{"a":1', "is not JSON"),
        (b'{"a":01}', "is not JSON"),
        (b'{"a":+1}', "is not JSON"),
        (b'{"x":"\n"}', "is not JSON"),
        (b'{"x":"\\x"}', "is not JSON"),
        (b'{"x":"\\u00g0"}', "is not JSON"),
        (b'{"x":tru}', "is not JSON"),
        (b'{"x":INF}', "is not JSON"),
        (b"{x:1}", "is not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "is not JSON"),
        (b'{"x":"\xff"}', "is not UTF-8 at byte 6"),
        (b'{"x":"\xed\xa0\x80"}', "is not UTF-8 at byte 6"),
        (b'{"x":' + b"[" * 1001 + b"]" * 1001 + b"}", "is "),
        (b"[1]", "is [1]; it must be an object"),
    ],
)
def test_invalid_json_is_rejected(modules: Modules, text: bytes, said: str) -> None:
    rows, bad = read(modules, pa.struct([("a", pa.int32())]), [text, b'{"a":1}'])
    assert rows == [None, {"a": 1}]
    assert [(each.row, each.field) for each in bad] == [(0, "")]
    assert bad[0].problem.startswith(said)


@both
def test_blank_and_null_rows_become_null(modules: Modules) -> None:
    deep = b'{"x":' + b"[" * 999 + b"]" * 999 + b',"a":1}'
    assert read(modules, pa.struct([("a", pa.int32())]), [b"", b" \n", None, b"null", deep]) == (
        [*[None] * 4, {"a": 1}],
        [],
    )


@both
def test_partial_values_of_bad_rows_are_removed(modules: Modules) -> None:
    inner = pa.struct([("m", pa.map_(pa.string(), pa.string())), ("s", pa.string()), ("z", pa.decimal128(5, 2))])
    kind = pa.struct([("l", pa.list_(inner)), ("b", pa.binary()), ("y", pa.bool_()), ("i", pa.int16())])
    good = '{"l":[{"m":{"k":"v"},"s":"x","z":1},null],"b":"AAE=","y":true,"i":7}'
    texts = [good] * 9
    for cut in range(1, len(good)):
        texts += [good[:cut], good[:cut] + "?" + good[cut:], good]
    rows = modules[1].ByteRows(*_buffers([text.encode() for text in texts]))
    column, bad = modules[0].decode(plan_of(kind), rows)
    array = array_of(kind, column)
    array.validate(full=True)
    is_bad = {each.row for each in bad}
    assert len(is_bad) > len(good)
    row = {"l": [{"m": [("k", "v")], "s": "x", "z": Decimal(1)}, None], "b": b"\0\1", "y": True, "i": 7}
    for number, (text, found) in enumerate(zip(texts, array.to_pylist(), strict=True)):
        assert (found is None) == (number in is_bad)
        if text == good:
            assert found == row
    column, bad = modules[0].decode(plan_of(kind), rows, True)
    assert (column.length, [each.row for each in bad]) == (10, [9])


def _buffers(texts: list[bytes]) -> tuple[Any, ...]:
    array = pa.array(texts, pa.binary())
    return (len(array), 0, *array.buffers(), False)


# -- against Python ------------------------------------------------------------------------------------------------

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@both
@some
@given(st.one_of(NUMBERS, st.floats(allow_nan=False, allow_infinity=False).map(repr)))
@example("9007199254740993")
@example("2.2250738585072011e-308")
@example("1e23")
@example("0." + "0" * 30 + "12345678901234567890123")
def test_doubles_are_the_nearest(modules: Modules, text: str) -> None:
    expected = float(text)
    found = value(modules, pa.float64(), text)
    if math.isinf(expected):
        assert isinstance(found, str)
    else:
        assert found == expected


@both
@some
@given(st.one_of(NUMBERS, NUMBERS.map(json.dumps)), st.integers(1, 38), st.integers(0, 38))
def test_decimals_are_rounded_half_up(modules: Modules, text: str, precision: int, scale: int) -> None:
    assume(scale <= precision)
    found = value(modules, pa.decimal128(precision, scale), text)
    with decimal.localcontext(prec=2000):
        expected = Decimal(text.strip('"')).scaleb(scale).quantize(Decimal(1), decimal.ROUND_HALF_UP)
        if abs(expected) >= 10**precision:
            assert isinstance(found, str)
        else:
            assert found.scaleb(scale) == expected


@both
@some
@given(TEXTS, st.booleans())
def test_strings_roundtrip(modules: Modules, text: str, ensure_ascii: bool) -> None:
    assert value(modules, pa.string(), json.dumps(text, ensure_ascii=ensure_ascii)) == text


# ruff: noqa: DTZ001 - hypothesis requires bounds without a zone
ZONES: Any = st.none() | st.integers(-1080, 1080).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
TIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=ZONES)


@both
@some
@given(TIMES, st.sampled_from("T "))
def test_iso_8601_times_are_parsed(modules: Modules, moment: dt.datetime, separator: str) -> None:
    found = value(modules, MOMENT, json.dumps(moment.isoformat(separator)))
    assert found == (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
LAYOUTS = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])


@both
@some
@given(VALUES, LAYOUTS)
def test_string_column_accepts_any_json_value(modules: Modules, given_value: Any, layout: dict[str, Any]) -> None:
    found = value(modules, pa.string(), json.dumps(given_value, **layout))
    if given_value is None or isinstance(given_value, str):
        assert found == given_value
    else:
        assert json.loads(found) == given_value
        assert not re.search(r"\s", re.sub(r'"(\\.|[^"])*"', "", found))


FIELDS = st.sampled_from(["a", "b", "c", "bb", "é", 'q"', ""])


@both
@some
@given(st.lists(st.lists(st.tuples(FIELDS, VALUES), max_size=8), min_size=1, max_size=3), LAYOUTS)
def test_fields_are_found_in_any_order(modules: Modules, rows: list[Any], layout: dict[str, Any]) -> None:
    """Each field is a string, so any value fits."""
    texts = [
        "{" + ", ".join(f"{json.dumps(name)}:{json.dumps(each, **layout)}" for name, each in row) + "}" for row in rows
    ]
    names = ["a", "bb", 'q"', "é"]
    found, bad = read(modules, pa.struct([(name, pa.string()) for name in names]), [text.encode() for text in texts])
    assert not bad
    for row, text in zip(found, texts, strict=True):
        parsed = json.loads(text)
        for name in names:
            here, there = row[name], parsed.get(name)
            assert (here if there is None or isinstance(there, str) else json.loads(here)) == there


@both
@some
@given(st.lists(st.tuples(st.text("abc", max_size=2), st.integers(0, 9)), max_size=30))
def test_last_value_of_a_duplicate_map_key_wins(modules: Modules, entries: list[tuple[str, int]]) -> None:
    text = "{" + ",".join(f'"{key}":{number}' for key, number in entries) + "}"
    assert value(modules, pa.map_(pa.string(), pa.int32()), text) == list(dict(entries).items())


LENIENT = re.compile(rb"'|NaN|INF|Infinity|\\u[dD]")


@both
@settings(deadline=None, max_examples=2 * DRAWN_EXAMPLES)
@given(
    VALUES,
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(list(b'{}[]:,"\\ue019-+.x \n\xc3\xa9')), st.booleans())),
)
def test_corrupted_texts_are_rejected_as_by_json_module(modules: Modules, given_value: Any, changes: list[Any]) -> None:
    text = bytearray(json.dumps({"a": given_value, "b": 1.5}).encode())
    for at, byte, is_added in changes:
        if is_added:
            text.insert(at, byte)
        elif at < len(text):
            text[at] = byte
    assume(not LENIENT.search(text))
    rows, bad = read(modules, pa.struct([("zz", pa.string())]), [bytes(text)])
    try:
        parsed = json.loads(text.decode("utf-8"))
    except ValueError:
        assert bad or not text.strip(b" \n\r\t")
    else:
        assert bool(bad) == (not isinstance(parsed, dict) and parsed is not None)
    assert rows == [None if bad or rows[0] is None else {"zz": None}]


# -- writing -------------------------------------------------------------------------------------------------------


def written(modules: Modules, kind: Any, rows: list[Any]) -> list[Any]:
    array = pa.array([None, *rows], kind)[1:]  # an array with an offset
    buffers = array.buffers()
    view = modules[1].ColumnView(len(array), array.offset, buffers, [])
    texts: list[Any] = array_of(pa.binary(), modules[0].encode(plan_of(kind), view)).to_pylist()
    return texts


@both_writers
@some
@given(st.floats() | st.integers(-(10**12), 10**12).map(lambda number: number / 1000))
def test_doubles_become_the_shortest_texts_that_roundtrip(modules: Modules, number: float) -> None:
    (text,) = written(modules, pa.float64(), [number])
    if not math.isfinite(number):
        assert float(json.loads(text)) == number or math.isnan(number)
        return
    assert float(text) == number
    digits, shortest = (re.sub(r"[-.]|[eE].*", "", each).strip("0") for each in (text.decode(), repr(number)))
    assert digits == shortest
    assert re.fullmatch(rb"-?(\d{1,7}\.\d+|\d\.\d+E-?\d+)", text)


@both_writers
@some
@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(0, 10**6).map(lambda number: number / 100)
)
def test_floats_roundtrip(modules: Modules, number: float) -> None:
    def single(of: float) -> float:
        result: float = struct.unpack("<f", struct.pack("<f", of))[0]
        return result

    (text,) = written(modules, pa.float32(), [number])
    assert single(float(text)) == single(number)
    assert len(re.sub(rb"[-.]|[eE].*", b"", text).strip(b"0")) <= 9


@both_writers
@some
@given(TEXTS, st.binary(max_size=10))
def test_strings_and_bytes_roundtrip(modules: Modules, text: str, data: bytes) -> None:
    import base64

    (found,) = written(modules, pa.string(), [text])
    assert json.loads(found) == text
    assert written(modules, pa.binary(), [data]) == [b'"%s"' % base64.b64encode(data)]


@both_writers
@pytest.mark.parametrize(
    ("kind", "given_value", "text"),
    [
        (pa.float64(), 1e7, b"1.0E7"),
        (pa.float64(), 9999999.5, b"9999999.5"),
        (pa.float64(), 0.001, b"0.001"),
        (pa.float64(), 0.00099, b"9.9E-4"),
        (pa.float64(), -0.0, b"-0.0"),
        (pa.float32(), 16777216.0, b"1.6777216E7"),
        (pa.int64(), -(2**63), b"-9223372036854775808"),
        (pa.int8(), -128, b"-128"),
        (pa.decimal128(9, 2), Decimal("-0.05"), b"-0.05"),
        (pa.decimal128(9, 0), Decimal(7), b"7"),
        (pa.decimal128(38, 20), Decimal("-123456789012345678.5"), b"-123456789012345678.50000000000000000000"),
        (pa.decimal128(38, 2), Decimal("-123456789012345678901234.5"), b"-123456789012345678901234.50"),
        (pa.decimal128(38, 38), Decimal("1e-38"), b"0.00000000000000000000000000000000000001"),
        (pa.date32(), dt.date(1, 2, 3), b'"0001-02-03"'),
        (MOMENT, dt.datetime(2013, 1, 1, 5, tzinfo=UTC), b'"2013-01-01T05:00:00.000Z"'),
        (MOMENT, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), b'"1969-12-31T23:59:59.999999Z"'),
        (pa.timestamp("us"), dt.datetime(1, 1, 1, 1, 2, 3, 4000), b'"0001-01-01T01:02:03.004"'),
        (pa.string(), '\x01\x7f"\\/\b\f\n\r\té', '"\\u0001\x7f\\"\\\\/\\b\\f\\n\\r\\té"'.encode()),
        (pa.bool_(), False, b"false"),
    ],
)
def test_values_become_expected_texts(modules: Modules, kind: Any, given_value: Any, text: bytes) -> None:
    assert written(modules, kind, [given_value, None]) == [text, None]


@both_writers
@some
@given(st.integers(-(2**31), 2**31 - 1))
def test_dates_of_any_year_roundtrip(modules: Modules, days: int) -> None:
    reader = READERS[WRITERS.index(modules)]
    array = pa.array([days], pa.int32()).view(pa.date32())
    view = modules[1].ColumnView(1, 0, array.buffers(), [])
    (text,) = array_of(pa.binary(), modules[0].encode(("date32",), view)).to_pylist()
    if re.match(rb'"[+-]?\d{4,6}-', text):
        (again,), bad = _days(reader, text)
        assert (again, bad) == (days, [])
    else:
        assert _days(reader, text)[1]


def _days(modules: Modules, text: bytes) -> tuple[list[Any], list[Any]]:
    view = modules[1].ByteRows(*_buffers([text]))
    column, bad = modules[0].decode(("date32",), view)
    return array_of(pa.int32(), column).to_pylist(), bad
