"""Formats: the output of a writer is read back by the same format without loss, for any records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.consumer.record import Record, record_class
from ottla.tools.formats.escaping import NotEscaped, escaped, escaped_text, for_terminal, unescaped
from ottla.tools.formats.json_lines import read_lines, write_lines
from ottla.tools.formats.record_reader import BadRecord, NewRecord, Template, read_records
from ottla.tools.formats.record_writer import Writer, iso
from ottla.tools.formats.template import FormatError, parse

names = st.text(st.characters(codec="utf-8"), max_size=8)
maybe_bytes = st.none() | st.binary(max_size=20) | st.sampled_from([b"", b"\\N", b"a\tb", b"\n", "ä,=".encode()])
header_lists = st.lists(st.tuples(names, maybe_bytes), max_size=3)
timestamps = st.integers(0, 253_402_300_799_999)
# Two partitions in any order, because a writer caches a template for each partition.
records = st.builds(
    lambda topic, partition, *fields: record_class(topic, partition)(*fields),
    st.just("orders"),
    st.integers(0, 1),
    st.integers(0, 2**63 - 1),
    timestamps,
    maybe_bytes,
    maybe_bytes,
    header_lists,
)
EXACT = [
    r"%T %p %o %K{big32}%k%V{little64}%v%H %h{%K{big16}%k%V{big32}%v}",
    r"%T,%p,%K:%k%V:%v%H:%h{%K:%k%V:%v}",
    r"%T{iso} %p\t%k{escaped}\t%v{escaped}\t%h\n",
    r"%T{big64}%p{little16}%k{escaped}|%v{escaped} %h;%%end",
    r"%h\n%v{escaped}\n%k{escaped}\n%T %p\n",
    r"%p{big8}%T %h;%k{escaped},%v{escaped}\n",
    r"%T %p\x00%k{escaped}\x00%v{escaped}\x00%h",
]


def back(text: str, data: bytes, null: bytes | None = None) -> list[NewRecord]:
    """Read all records with a format; a BadRecord fails the test."""
    made = []
    for _, record in read_records(Template(parse(text), null=null), io.BytesIO(data)):
        assert isinstance(record, NewRecord), record
        made.append(record)
    return made


def written(text: str, rows: Sequence[Record], null: bytes = b"") -> bytes:
    return Writer(parse(text), null=null).lines(rows)


def wanted(rows: Iterable[Record]) -> list[NewRecord]:
    return [NewRecord(r.key, r.value, r.headers, r.partition, r.timestamp) for r in rows]


@pytest.mark.parametrize("text", EXACT)
@given(rows=st.lists(records, max_size=4))
def test_format_reads_back_its_own_output(text: str, rows: list[Record]) -> None:
    data = written(text, rows)
    if not text.endswith("%h") or len(rows) < 2:  # a final field reads the rest of the input
        assert [(*r[:2], list(r[2]), *r[3:5]) for r in back(text, data)] == [tuple(w)[:5] for w in wanted(rows)]


@pytest.mark.parametrize("encoding", ["hex", "base64"])
@given(rows=st.lists(records, max_size=4))
def test_encoded_fields_and_null_marker_are_read_back(encoding: str, rows: list[Record]) -> None:
    text = f"%k{{{encoding}}} %v{{{encoding}}}\\n"
    read = back(text, written(text, rows, b"NULL"), b"NULL")
    assert [(r.key, r.value) for r in read] == [(r.key, r.value) for r in rows]


@given(rows=st.lists(records, max_size=6))
def test_one_format_per_partition_writes_the_same_as_part_by_part(rows: list[Record]) -> None:
    writer = Writer(parse(r"%t-%p@%o %T 100%% %k=%v\n"), null=b"~")
    assert writer.lines(rows) == b"".join(writer.line(row) for row in rows)


@given(rows=st.lists(records, max_size=4))
def test_json_lines_preserve_all_records(rows: list[Record]) -> None:
    text = write_lines(rows)
    assert text.count("\n") == len(rows)
    assert "\r" not in text
    read = [record for _, record in read_lines(io.BytesIO(text.encode()))]
    assert read == [NewRecord(r.key, r.value, r.headers, r.partition, r.timestamp, "orders") for r in rows]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(values, st.sampled_from([None, 2]))
def test_embedded_json_value_is_read_back_equal(value: object, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    text = write_lines([record_class("t", 0)(0, 0, None, data, [])], inline=True)
    assert text.count("\n") == 1
    ((_, record),) = read_lines(io.BytesIO(text.encode()), inline=True)
    assert isinstance(record, NewRecord)
    assert record.value is not None
    assert json.loads(record.value) == value


@pytest.mark.parametrize("value", [None, b"null", b"plain", b"", b"NaN", b"1e999", b"\xff", b'{"a":', b"[" * 5000])
def test_embedding_distinguishes_json_text_bytes_and_null(value: bytes | None) -> None:
    text = write_lines([record_class("t", 0)(0, 0, None, value, [])], inline=True)
    json.loads(text)
    ((_, record),) = read_lines(io.BytesIO(text.encode()), inline=True)
    if value == b"1e999":  # valid JSON that a float cannot represent: rejected, not changed
        assert isinstance(record, BadRecord)
    else:
        assert isinstance(record, NewRecord)
        assert record.value == value


@given(st.binary(max_size=30))
def test_escaped_bytes_are_printable_on_one_line_and_unescape_to_the_original(data: bytes) -> None:
    assert escaped_text(data).isprintable()
    assert unescaped(escaped(data)) == data
    assert b"," not in escaped(data, ",")


def test_control_characters_are_escaped_for_a_terminal() -> None:
    assert escaped(b"\x1b[31mred\x07\r\x00") == rb"\x1b[31mred\x07\r\x00"
    assert escaped("a\u202eb\u009b".encode()) == rb"a\xe2\x80\xaeb\xc2\x9b"
    assert for_terminal('{"v":"\x7f\u009b\u202e😀\U000e0001"}\n') == '{"v":"\\u007f\\u009b\\u202e😀\\udb40\\udc01"}\n'
    assert json.loads(for_terminal('"\x7f\U000e0001"')) == "\x7f\U000e0001"


def test_invalid_escape_is_rejected() -> None:
    for text in (rb"\q", b"\\", rb"\x1", rb"\xg0"):
        with pytest.raises(NotEscaped):
            unescaped(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%z", "unknown"),
        ("%", "unknown"),
        (r"\q", "not an escape"),
        ("%v{zip}", "hex, base64, escaped"),
        ("%p{iso}", "big8"),
        ("%k{hex", "never closed"),
        ("%h{%t}", "within"),
    ],
)
def test_invalid_format_names_the_alternatives(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%k%v\\n", "no text between the key and the value"),
        ("%p1%v\\n", "could be a part of the number"),
        ("%v%v\\n", "no text between"),
        ("%v %v\\n", "twice"),
        ("%T{strftime[%Y]} %v\\n", "strftime"),
        ("%h{%k=%v,}\\n%v", "as %H"),
        ("%H %h{%k=%v}\\n%v", "no text between"),
        ("%k{hex}a%v\\n", "part of the hex"),
        ("%k{escaped}\\\\%v\\n", "part of it"),
        ("%h,%v\\n", "part of it"),
        ("%p\\n", "nothing to produce"),
    ],
)
def test_format_with_an_ambiguous_end_of_a_field_is_rejected_before_reading(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        Template(parse(text))


def test_invalid_line_is_reported_with_its_number_and_reading_continues() -> None:
    data = b"a:1\nno delimiter\nb:2\nc:3"
    rows = list(read_records(Template(parse(r"%k:%v\n")), io.BytesIO(data)))
    assert [number for number, _ in rows] == [1, 2, 3, 4]
    assert [(r.key, r.value) for _, r in rows if isinstance(r, NewRecord)] == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    assert isinstance(rows[1][1], BadRecord)
    assert "after its key" in str(rows[1][1])
    assert not rows[1][1].fatal


@pytest.mark.parametrize("data", [b"5:abc", b"99999999999999999999:x", b"-2:x", b"x:1"])
def test_invalid_size_is_a_fatal_error(data: bytes) -> None:
    ((number, error),) = read_records(Template(parse("%V:%v")), io.BytesIO(data))
    assert number == 1
    assert isinstance(error, BadRecord)
    assert error.fatal


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[1]", "not a JSON object"),
        (b'{"vaule":1}', "'vaule' is unknown"),
        (b'{"partition":-2}', "partition"),
        (b'{"partition":true}', "partition"),
        (b'{"key":"a","key_base64":"YQ=="}', "exclude each other"),
        (b'{"value_base64":"%"}', "value_base64"),
        (b'{"headers":[1]}', "name and value"),
        (b'{"key":"\\ud800"}', "surrogate"),
        (b'{"a":', "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"value":NaN}', "NaN"),
    ],
)
def test_invalid_json_record_is_reported_with_the_reason(line: bytes, says: str) -> None:
    ((number, error),) = read_lines(io.BytesIO(line))
    assert number == 1
    assert isinstance(error, BadRecord)
    assert says in str(error)


def test_json_accepts_numbers_objects_and_headers_as_an_object() -> None:
    line = b'{"key":7,"value":{"a":[1,"\xc3\xa4"]},"headers":{"trace":"x","none":null}}'
    ((_, record),) = read_lines(io.BytesIO(line))
    assert record == NewRecord(b"7", '{"a":[1,"ä"]}'.encode(), [("trace", b"x"), ("none", None)])


def test_timestamps_outside_the_calendar_are_written_as_numbers() -> None:
    assert iso(1_769_860_800_123) == "2026-01-31T12:00:00.123Z"
    assert iso(-1) == "-1"
    assert iso(2**62) == str(2**62)
