"""JsonConverter: what it writes it reads, and errors name their field. See tests/connect/worker for Java's answers."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.converters.java_text import double_text, float_text
from ottla.connect.converters.json import JsonConverter
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from tests.connect.worker.json_values import random_schema, random_value

ROW = data.struct({"id": data.INT32, "name": data.OPTIONAL_STRING, "price": data.decimal(2)}, "row")


def converter(**settings: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({name.replace("_", "."): value for name, value in settings.items()}, is_key=False)
    return made


def same(left: Any, right: Any) -> bool:
    """Whether values are equal, in types and signs, too."""
    return repr(left) == repr(right)


@pytest.mark.parametrize("decimal_format", ["BASE64", "numeric"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_written_is_read(seed: int, decimal_format: str) -> None:
    random, ours = Random(seed), converter(decimal_format=decimal_format)
    for _ in range(60):
        schema = random_schema(random)
        for _ in range(3):
            value = random_value(random, schema)
            written = ours.from_connect("t", schema, value)
            assert written is not None
            if value is None and schema.has_default:
                value = schema.default
            found = ours.to_connect("t", written)
            assert found.schema == schema
            assert same(found.value, value), (schema, written)
            assert ours.from_connect("t", found.schema, found.value) == written
            assert ours.encoder(schema)(value) == written


def test_without_schemas_values_are_plain_json() -> None:
    ours = converter(schemas_enable="false")
    assert ours.from_connect("t", ROW, {"id": 1, "name": None, "price": Decimal("1.5")}) == (
        b'{"id":1,"name":null,"price":"AJY="}'
    )
    assert ours.to_connect("t", b'{"a": [1, 2.5, null]}') == (None, {"a": [1, 2.5, None]})
    assert ours.from_connect("t", None, {"x": b"ab", 1: 2}) == b'[["x","YWI="],[1,2]]'
    assert ours.from_connect("t", None, None) is None
    assert ours.from_connect("t", data.OPTIONAL_STRING, None) == b"null"
    assert ours.to_connect("t", b"") == (None, None)
    assert ours.to_connect("t", None) == (None, None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": "1"}, r"Invalid type for INT32: str \(field id\)"),
        ({"id": True}, r"Invalid type for INT32: bool \(field id\)"),
        ({"id": 1 << 31}, r"2147483648 does not fit INT32 \(field id\)"),
        ({"id": 1, "price": Decimal("1.234")}, r"1\.234 does not fit the Decimal schema with scale 2 \(field price\)"),
        ({"id": 1, "price": 1.5}, r"expected Decimal but was float \(field price\)"),
        ({"id": None}, r"null value for field that is required and has no default value \(field id\)"),
        ({"id": 1, "extra": 2}, r"extra is not a valid field name: the fields are id, name, price"),
        ({"id": 1, "name": "\ud800", "price": Decimal(1)}, "serialization error"),
        ([1], "Invalid type for STRUCT: list"),
    ],
)
def test_value_that_does_not_fit_names_its_field(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        converter().from_connect("t", ROW, value)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"id": "1"}, r"INT32 field \(id\): a string"),
        ({"id": 1.5}, r"INT32 field \(id\)"),
        ({"id": 1 << 40}, r"does not fit INT32 \(id\)"),
        ({"name": "x"}, r"Invalid null value for required INT32 field \(id\)"),
        ({"id": 1, "name": 5}, r"STRING field \(name\): an integer"),
        ([], "Structs should be encoded as JSON objects"),
    ],
)
def test_json_that_does_not_fit_names_its_field(payload: Any, message: str) -> None:
    ours = converter()
    written = ours.from_connect("t", ROW, {"id": 1, "name": "x", "price": Decimal(1)})
    assert written is not None
    beginning = written[: written.index(b'"payload":') + 10]
    for _ in range(2):  # the second time the beginning is known
        with pytest.raises(DataError, match=message):
            ours.to_connect("t", beginning + json.dumps(payload).encode() + b"}")
        ours.to_connect("t", written)


@pytest.mark.parametrize("given", [b"{", b"1", b'{"schema":null}', b'{"schema":null,"payload":1,"x":2}', b"[]"])
def test_wrong_envelope_is_refused_also_after_a_good_one(given: bytes) -> None:
    ours = converter()
    ours.to_connect("t", b'{"schema":null,"payload":1}')
    with pytest.raises(DataError):
        ours.to_connect("t", given)
    assert ours.to_connect("t", b' { "schema" : null , "payload" : {"a": "}"} } ') == (None, {"a": "}"})
    assert ours.to_connect("t", b'{"payload":2,"schema":null}') == (None, 2)


def test_schema_objects_of_records_are_reused() -> None:
    ours = converter()
    row = {"id": 1, "name": "x", "price": Decimal(1)}
    first, second = (ours.to_connect("t", ours.from_connect("t", ROW, {**row, "id": each})) for each in (1, 2))
    assert first.schema is second.schema


def test_null_is_replaced_by_the_default_unless_told_otherwise() -> None:
    schema = data.struct({"n": Schema(Type.INT32, optional=True, default=7)})
    assert converter(schemas_enable="false").from_connect("t", schema, {}) == b'{"n":7}'
    plain = converter(schemas_enable="false", replace_null_with_default="false")
    assert plain.from_connect("t", schema, {}) == b'{"n":null}'


def test_caches_are_limited() -> None:
    ours = converter(schemas_cache_size="10")
    for number in range(50):
        schema = data.struct({f"f{number}": data.INT8})
        ours.to_connect("t", ours.from_connect("t", schema, {f"f{number}": 1}))
    assert len(ours._encoders) <= 10
    assert len(ours._readers) <= 10
    assert len(ours._beginnings) <= 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-1.5e-10, "-1.5E-10"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (2e23, "2.0E23"),
    ],
)
def test_double_is_printed_as_java_does(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e10, "1.0E10"), (3.4028235e38, "3.4028235E38"), (1.4e-45, "1.4E-45"), (16777216.0, "1.6777216E7")],
)
def test_float_is_printed_as_java_does(value: float, text: str) -> None:
    assert float_text(value) == text
