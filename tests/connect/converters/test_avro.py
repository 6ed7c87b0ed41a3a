"""The Avro converter writes Confluent's schemas and bytes and reads them as Confluent's does."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ottla.clients.serializers.avro import parsed
from ottla.clients.serializers.base import References
from ottla.connect import data
from ottla.connect.converters.avro import AvroConverter, is_bytes, plain_references
from ottla.connect.converters.avro_schemas import AvroSchemaReader, AvroSchemaWriter
from ottla.connect.converters.avro_values import encoder
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.schemas.model import Schema, SchemaType
from tests.connect.converters.json_text import TEXT, L, ask, of
from tests.connect.http_server import Response, http_server

INNER = of("struct", name="a.b.In", version=3, doc="inner", optional=True, fields=[of("int32", "x")])
ROW = of(
    "struct",
    name="a.b.Out",
    doc="outer",
    fields=[
        of("int8", "i8"),
        of("int16", "i16", optional=True),
        of("int32", "i", default=7, doc="a doc"),
        of("int64", "l"),
        of("float", "f", default=1.5),
        of("double", "d"),
        of("boolean", "ok", optional=True),
        of("string", "s"),
        of("string", "od", optional=True, default="z"),
        of("bytes", "raw"),
        {**INNER, "field": "one"},
        {**INNER, "field": "two"},
        of("int32", "day", name=f"{L}Date", version=1),
        of("int32", "clock", name=f"{L}Time", version=1, optional=True),
        of("int64", "moment", name=f"{L}Timestamp", version=1),
        of("bytes", "price", name=f"{L}Decimal", version=1, parameters={"scale": "2"}),
        of("int64", "micro", name="io.debezium.time.MicroTimestamp", version=1, optional=True),
        of("array", "many", items=INNER),
        of("array", "numbers", items=of("int32"), optional=True),
        of("map", "m", keys=of("string"), values=of("int32", optional=True)),
        of("map", "entries", keys=of("int32"), values=of("string")),
        of(
            "string",
            "e",
            name="io.debezium.data.Enum",
            version=1,
            parameters={"allowed": "true,last"},
            optional=True,
            default="false",
        ),
    ],
)
VALUES = {
    "i8": -5,
    "i16": 300,
    "i": 1,
    "l": 1 << 40,
    "f": 0.5,
    "d": 1e300,
    "ok": True,
    "s": "ä\u0000",
    "od": None,
    "raw": "AAH/",
    "one": {"x": 1},
    "two": None,
    "day": 19_000,
    "clock": 3_723_004,
    "moment": 1_700_000_000_123,
    "price": "MDk=",
    "micro": 5,
    "many": [{"x": 1}, None],
    "numbers": None,
    "m": {"k": None},
    "entries": [[1, "a"], [2, "b"]],
    "e": "x",
}
ANONYMOUS = of("struct", fields=[of("struct", "q", fields=[of("int8", "r")])])
WRITTEN: tuple[tuple[dict[str, Any], Any], ...] = (
    (ROW, VALUES),
    (ROW, {**VALUES, "one": None, "micro": None, "clock": None, "e": None, "i16": None, "many": [], "entries": []}),
    (of("int8"), 5),
    (of("int16", optional=True), None),
    (of("int32", default=3), 9),
    (of("int64"), -1),
    (of("string", optional=True, default="x"), "y"),
    (of("bytes"), "AAEC"),
    (of("boolean"), False),
    (of("float"), 0.1),
    (of("double"), 0.1),
    (of("int32", name=f"{L}Date", version=1), 0),
    (of("int64", name=f"{L}Timestamp", version=1, default=5), 9),
    (of("bytes", name=f"{L}Decimal", version=1, parameters={"scale": "2", "connect.decimal.precision": "10"}), "MDk="),
    (of("array", items=of("string", optional=True)), ["a", None]),
    (of("map", keys=of("string"), values=of("int32")), {}),
    (of("map", keys=of("string", optional=True), values=of("string")), {"k": "v"}),
    (of("map", name="my.Map", keys=of("int32"), values=of("string")), [[1, "v"]]),
    (ANONYMOUS, {"q": {"r": 1}}),
    (of("struct", name="Plain", fields=[of("int8", "r")]), {"r": 1}),
    (of("struct", name="x.y.Z", fields=[of("struct", "q", name="w.V", fields=[of("int8", "r")])]), {"q": {"r": 1}}),
)
RECORD = {
    "type": "record",
    "name": "a.R",
    "doc": "d",
    "fields": [
        {"name": "x", "type": "int", "default": 3, "doc": "fd"},
        {"name": "y", "type": ["null", "string"], "default": None},
        {"name": "z", "type": ["string", "null"], "default": "q"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "default": "X"},
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "n", "type": ["null", "a.E"], "default": None},
        {"name": "u", "type": ["int", "string", "null"]},
        {"name": "fx", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "i", "type": "long"}]}},
        {"name": "again", "type": ["null", "In"]},
    ],
}
RECORD_VALUE = {
    "x": 1,
    "y": "t",
    "z": None,
    "e": "Y",
    "b": b"\0\1",
    "n": "X",
    "u": "text",
    "fx": b"ab",
    "us": 7,
    "in": {"i": 1},
    "again": {"i": 2},
}
READ: tuple[tuple[Any, Any], ...] = (
    (RECORD, RECORD_VALUE),
    (RECORD, {**RECORD_VALUE, "u": 5, "n": None, "again": None}),
    (RECORD, {**RECORD_VALUE, "u": None}),
    ("int", 5),
    (["null", "string"], "s"),
    (["string", "null"], "x"),
    (["int", "string"], "x"),
    (["null", "int", "string"], 4),
    ({"type": "enum", "name": "a.E", "symbols": ["X"]}, "X"),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
    ({"type": "map", "values": "int"}, {"a": 1}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x01\x00"),
    ({"type": "int", "logicalType": "date"}, 19_000),
    ({"type": "int", "logicalType": "time-millis"}, 5),
    ({"type": "long", "logicalType": "timestamp-millis"}, 5),
    ({"type": "long", "logicalType": "time-micros"}, 5),
    ({"type": "string", "logicalType": "uuid"}, "u"),
    ({"type": "array", "items": ["null", "long"]}, [1, None]),
    ({"type": "int", "connect.type": "int8"}, 5),
    (
        {
            "type": "long",
            "connect.version": 1,
            "connect.name": "n",
            "connect.doc": "d",
            "connect.parameters": {"p": "q"},
            "connect.default": 5,
        },
        6,
    ),
    (
        [
            {"type": "record", "name": "A", "fields": [{"name": "i", "type": "int"}]},
            {"type": "record", "name": "B", "fields": [{"name": "i", "type": "int"}]},
        ],
        ("B", {"i": 3}),
    ),
)


def own_schema(text: str) -> Any:
    return parsed(plain_references(References(Schema(SchemaType.AVRO, text), {})))


def own_body(text: str, value: Any) -> bytes:
    if is_bytes(own_schema(text)):
        return value
    out = io.BytesIO()
    fastavro.schemaless_writer(out, own_schema(text), value)
    return out.getvalue()


@pytest.mark.jvm
def test_schemas_and_bytes_are_confluents() -> None:
    texts = [json.dumps({"schema": schema, "payload": value}) for schema, value in WRITTEN]
    for text, answer in zip(texts, ask([{"converter": "avro", "json": each} for each in texts]), strict=True):
        schema, value = TEXT.to_connect("t", text.encode())
        assert schema is not None
        if answer.get("body", "") is None:
            assert value is None
            continue
        written = json.dumps(AvroSchemaWriter().written(schema), separators=(",", ":"), ensure_ascii=False)
        assert written == answer["schema"], text
        convert = encoder(schema)
        body = own_body(written, value if convert is None else convert(value))
        assert body == base64.b64decode(answer["body"]), text


@pytest.mark.jvm
def test_values_are_read_as_by_confluent(tmp_path: Path) -> None:
    del tmp_path
    questions = []
    for avro, value in READ:
        text = json.dumps(avro)
        body = base64.b64encode(own_body(text, value)).decode()
        questions.append({"converter": "avro", "schema": text, "body": body})
    reader = AvroConverter()
    reader.configure({"schema.registry.url": "http://127.0.0.1:1"}, is_key=False)
    for question, answer in zip(questions, ask(questions), strict=True):
        found = reader.reader_of(question["schema"])(base64.b64decode(question["body"]), 0)
        own = TEXT.from_connect("t", found.schema, found.value)
        assert own is not None
        expected, actual = json.loads(answer["json"]), json.loads(own)
        if "connect.version" not in question["schema"]:
            for each in (expected, actual):  # the version in the registry
                each["schema"].pop("version", None)
        assert actual == expected, question
    reader.close()


def converter(url: str, config: Mapping[str, str] | None = None, *, is_key: bool = False) -> AvroConverter:
    made = AvroConverter()
    made.configure({"schema.registry.url": url, **(config or {})}, is_key=is_key)
    return made


def test_record_goes_through_the_registry_and_comes_back(registry: str) -> None:
    schema, value = TEXT.to_connect("t", json.dumps({"schema": ROW, "payload": VALUES}).encode())
    writer = converter(registry)
    written = writer.from_connect("orders", schema, value)
    assert written is not None
    assert written[0] == 0
    assert writer.from_connect("orders", schema, value) == written
    found = writer.to_connect("orders", written)
    again = writer.to_connect("orders", written)
    assert again.schema is found.schema, "one schema object for each id"
    expected = TEXT.from_connect("t", schema, {**value, "od": "z"})
    assert expected is not None
    assert json.loads(TEXT.from_connect("t", found.schema, found.value) or b"") == json.loads(expected)
    assert writer.from_connect("orders", schema, None) is None
    assert writer.to_connect("orders", None) == (None, None)
    writer.close()


def test_errors_say_what_to_do(registry: str) -> None:
    writer = converter(registry)
    with pytest.raises(DataError, match="needs a schema for the value"):
        writer.from_connect("t", None, 5)
    with pytest.raises(DataError, match="cannot be deserialized"):
        writer.to_connect("t", b"\0\0\0\xff\xff\1")
    with pytest.raises(DataError, match="not found"):
        converter(registry, {"auto.register.schemas": "false"}).from_connect(
            "absent", *TEXT.to_connect("t", b'{"schema":{"type":"int32"},"payload":1}')
        )
    writer.close()


def test_registry_that_is_down_is_retriable() -> None:
    writer = converter("http://127.0.0.1:1", {"max.retries": "0"})
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:1: .* and value\.converter\.schema\.registry\.url"):
        writer.from_connect("t", *TEXT.to_connect("t", b'{"schema":{"type":"int32"},"payload":1}'))
    writer.close()


@pytest.mark.parametrize(
    ("status", "words"), [(401, "basic.auth.user.info"), (403, "denies access"), (503, "see its log")]
)
def test_registry_that_denies_access_or_is_overloaded_does_not_blame_the_record(status: int, words: str) -> None:
    with http_server(lambda _: Response(status, b'{"error_code": %d, "message": "no"}' % status)) as url:
        reader = converter(url, {"max.retries": "0"})
        with pytest.raises(RetriableError, match=words):
            reader.to_connect("t", b"\0\0\0\0\1\2")
        reader.close()


def test_schema_that_contains_itself_is_refused() -> None:
    avro = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    with pytest.raises(ConnectError, match="contains itself"):
        AvroSchemaReader().read(avro)


def test_schema_that_unfolds_to_too_much_is_refused() -> None:
    avro: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 41):
        fields = [{"name": "a", "type": avro}, {"name": "b", "type": f"R{level - 1}"}]
        avro = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(DataError, match="more than 50000 types"):
        AvroSchemaReader().read(avro)


def nested(levels: int, *, optional: bool) -> Any:
    avro: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, levels):
        kind = ["null", avro] if optional else avro
        avro = {"type": "record", "name": f"R{level}", "fields": [{"name": "n", "type": kind}]}
    return avro


@pytest.mark.parametrize("optional", [False, True])
def test_chain_of_records_has_at_most_a_hundred_levels(optional: bool) -> None:
    for levels, accepted in ((100, True), (101, False), (250, False)):
        refusal = None if accepted else pytest.raises(DataError, match="nested more than 100 deep")
        schema, value = data.struct({"x": data.INT32}, "R0"), {"x": 1}
        for level in range(1, levels):
            member = replace(schema, optional=optional)
            schema, value = data.struct({"n": member}, f"R{level}"), {"n": value}
        if refusal is None:
            assert AvroSchemaReader().read(nested(levels, optional=optional)).type is data.Type.STRUCT
            assert converter("http://127.0.0.1:1").round_trip("t", schema, value) == value
            continue
        with refusal:
            AvroSchemaReader().read(nested(levels, optional=optional))
        with pytest.raises(DataError, match="nested more than 100 deep"):
            AvroSchemaWriter().written(schema)


def test_chain_of_names_has_at_most_a_hundred_levels() -> None:
    reader = AvroSchemaReader()
    chain = [
        {"type": "record", "name": f"R{level}", "fields": [{"name": "n", "type": f"R{level - 1}" if level else "int"}]}
        for level in range(101)
    ]
    for each in chain[:100]:
        reader.read(each)
    with pytest.raises(DataError, match="nested more than 100 deep"):
        reader.read(chain[100])


def test_union_within_a_union_is_refused() -> None:
    with pytest.raises(DataError, match="union as member"):
        AvroSchemaReader().read(["null", ["null", "int"]])
