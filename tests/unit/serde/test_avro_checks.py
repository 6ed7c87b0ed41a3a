"""Checks of Avro values against fastavro's values, compiled and as plain Python."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.serde import avro_checks
from ottla.serde.avro_schema import AvroSchemaError, parse
from tests.unit.serde.plain import plain

from .test_avro import cases, quick, written

BOTH = [avro_checks, plain("avro_checks")]
both = pytest.mark.parametrize("kernels", BOTH, ids=["built", "plain"])
FRAME = b"\0\0\0\0\7"
NODE = {"type": "record", "name": "a.Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def problems(kernels: Any, schema: Any, values: list[bytes], referenced: tuple[str, ...] = ()) -> list[Any]:
    """Check values that all have the schema id 7."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    check = kernels.AvroCheck(text, referenced)
    places = array("q", [7] * len(values)), array("q"), array("q")
    data = bytearray(b"before")
    for value in values:
        places[1].append(len(data))
        data += FRAME + value
        places[2].append(len(data))
    columns = b"".join(each.tobytes() for each in places)
    found: list[Any] = check.check(bytes(data), columns, 7, range(len(values)))
    return found


def reason(schema: Any, value: bytes) -> tuple[str, str] | None:
    """The problem with one value, in which both forms of the kernel agree."""
    built, plain_one = (problems(each, schema, [value]) for each in BOTH)
    assert built == plain_one
    return (built[0][1], built[0][2]) if built else None


@both
@quick
@given(cases(), st.binary(min_size=1, max_size=3))
def test_values_written_by_fastavro_are_valid_and_longer_ones_are_not(
    kernels: Any, case: tuple[str, list[Any]], more: bytes
) -> None:
    schema, values = case
    raw = [written(schema, value) for value in values]
    assert problems(kernels, schema, raw) == []
    assume(parse(schema).kind != "bytes")
    rests = problems(kernels, schema, [each + more for each in raw])
    assert [(row, why) for row, _, why in rests] == [(row, "has bytes after its last field") for row in range(len(raw))]


@both
@quick
@given(cases())
def test_truncated_values_are_invalid(kernels: Any, case: tuple[str, list[Any]]) -> None:
    schema, values = case
    assume(parse(schema).kind != "bytes")
    raw = [written(schema, value) for value in values]
    cut = [each[:-1] for each in raw if each]
    assert [row for row, _, _ in problems(kernels, schema, cut)] == list(range(len(cut)))


@quick
@given(cases(), st.lists(st.binary(max_size=40), max_size=5))
def test_both_kernels_agree_on_any_bytes(case: tuple[str, list[Any]], raw: list[bytes]) -> None:
    built, plain_one = (problems(each, case[0], raw) for each in BOTH)
    assert built == plain_one


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ("int", b"\x80\x80\x80\x80\x10", "has a number that does not fit its type"),
        ("boolean", b"\2", "has a boolean that is neither 0 nor 1"),
        ("boolean", b"", "ends before its value does"),
        ("string", b"\2\xff", "is not UTF-8"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "has an index beyond its enum's symbols"),
        (["null", "int"], b"\4", "has an index beyond its union's branches"),
        ({"type": "map", "values": "int"}, b"\2\2\xff\0\0", "is not UTF-8"),
        ({"type": "array", "items": "null"}, b"\x82\x89\x7a\0", "has more than a million items of zero bytes"),
    ],
)
def test_each_type_is_checked(schema: Any, value: bytes, expected: str) -> None:
    found = reason(schema, value)
    assert found is not None
    assert found[1] == expected


def test_place_of_a_problem_is_the_path_of_its_field() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "list", "type": {"type": "array", "items": inner}}]}
    assert reason(schema, b"\2\x80") == ("list[].n", "ends before its value does")


def test_recursive_types_are_checked_to_a_depth() -> None:
    assert reason(NODE, b"\2" * 150 + b"\0") is None
    assert reason(NODE, b"\2" * 151 + b"\0") == ("next", "is nested more than 150 deep")
    assert reason(NODE, b"\2" * 100_000 + b"\0") == ("next", "is nested more than 150 deep")


def test_types_of_other_schemas_can_be_used() -> None:
    outer = {"type": "record", "name": "a.Outer", "fields": [{"name": "node", "type": "Node"}]}
    for kernels in BOTH:
        assert problems(kernels, outer, [b"\2\0", b"\0"], (json.dumps(NODE),)) == []
        with pytest.raises(AvroSchemaError, match="'Node', which is not defined before its use"):
            problems(kernels, outer, [])


def test_logical_types_are_not_checked() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 60}
    record = {"type": "record", "name": "R", "fields": [{"name": "d", "type": schema}]}
    assert reason(record, b"\0") is None


def test_bytes_are_raw_as_confluents_serializers_write_them() -> None:
    assert reason("bytes", b"\xff without a length") is None


@both
def test_only_rows_with_the_id_are_checked(kernels: Any) -> None:
    check = kernels.AvroCheck('"int"')
    places = array("q", [7, 8, -1, -2, 0, 0, 0, 0, 5, 5, 0, 5]).tobytes()
    assert [row for row, _, _ in check.check(FRAME, places, 7, range(4))] == [0]
    assert check.check(FRAME, places, 7, range(1, 4)) == []


@both
@pytest.mark.parametrize("places", [[7, 0, 9], [7, -9, 5], [7, 4, 5], [7, 6, 5]])
def test_places_outside_of_the_data_are_an_error(kernels: Any, places: list[int]) -> None:
    with pytest.raises(IndexError):
        kernels.AvroCheck('"int"').check(FRAME, array("q", places).tobytes(), 7, range(1))
    with pytest.raises(IndexError):
        kernels.AvroCheck('"int"').check(FRAME, b"", 7, range(1))
