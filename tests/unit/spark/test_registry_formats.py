"""Columns with schemas in a registry, of all three types, in both directions, without Spark's JVM."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from ottla.clients.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from ottla.registry_client import Reference, RegistryClient, Schema, SchemaType
from ottla.spark.ddl import data_type, parse
from ottla.spark.formats import FormatError, column_type, decode
from ottla.spark.options import OptionError, SourceOptions, read_sink_options, read_source_options
from ottla.spark.registry import resolved
from ottla.spark.writing_formats import encoder
from tests.registry.stand_in import StandIn

TYPES = ("AVRO", "PROTOBUF", "JSON")
COLUMNS = (
    "id BIGINT NOT NULL, small INT, price DOUBLE, note STRING, raw BINARY, ok BOOLEAN, at TIMESTAMP, "
    "tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, inner_part STRUCT<x: INT, y: STRING>"
)
ROW = {
    "id": 2**40, "small": 7, "price": 1.5, "note": "n", "raw": b"\xff\x00", "ok": True,
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "tags": ["a", "b"], "counts": [("k", 1)],
    "inner_part": {"x": 1, "y": "z"},
}  # fmt: skip
PROTO = 'syntax = "proto3"; package shop; import "item.proto"; message Order { int64 id = 1; Item item = 2; }'
ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; }'


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def client(registry: StandIn) -> Iterator[RegistryClient]:
    with RegistryClient(url=registry.url, retries_wait_ms=1) as made:
        yield made


def source(registry: StandIn, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "schema": "registry"}
    names = {name.replace("_", "."): value for name, value in more.items()}
    return resolved(read_source_options({**given, "schema.registry.url": registry.url, **names}))


def sink(registry: StandIn, columns: str, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "schema": "registry", "schema.registry.url": registry.url}
    names = {name.replace("_", "."): value for name, value in more.items()}
    kind = data_type(parse(columns))
    assert isinstance(kind, StructType)
    made = encoder(read_sink_options({**given, **names}), kind)
    assert made is not None
    return made


def written(made: Any, columns: str, *rows: dict[str, Any]) -> list[bytes]:
    kind = to_arrow_type(data_type(parse(columns)), timezone="UTC")
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in kind]
    values: list[bytes] = (
        made(pa.record_batch(arrays, names=[field.name for field in kind])).column("value").to_pylist()
    )
    return values


def batch(*values: bytes | None) -> Any:
    rows = len(values)
    return pa.record_batch(
        {
            "key": pa.nulls(rows, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(range(100, 100 + rows), pa.int64()),
            "timestamp": pa.array([0] * rows, pa.timestamp("us", "UTC")),
        }
    )


def read(options: SourceOptions, *values: bytes | None) -> list[Any]:
    (found,) = decode(iter([batch(*values)]), options)
    rows: list[Any] = found.column("value").to_pylist()
    return rows


@pytest.mark.parametrize("kind", TYPES)
def test_written_columns_are_read_again_and_by_clients(registry: StandIn, client: RegistryClient, kind: str) -> None:
    values = written(sink(registry, COLUMNS, value_schemaType=kind), COLUMNS, ROW, {"id": 1})
    (version,) = registry.subjects["t-value"]
    assert version.get("schemaType", "AVRO") == kind
    first, second = read(source(registry), *values)
    assert first == ROW
    empty = {"tags": [], "counts": []} if kind == "PROTOBUF" else {}
    assert second == {**dict.fromkeys(ROW), "id": 1, **empty}
    deserializers = {"AVRO": AvroDeserializer, "PROTOBUF": ProtobufDeserializer, "JSON": JsonSchemaDeserializer}
    more = {"from_dict": dict} if kind == "PROTOBUF" else {}
    single = deserializers[kind](None, client, **more)(values[0], topic="t")
    assert (single["id"], single["note"], single["tags"]) == (2**40, "n", ["a", "b"])
    columns = {field.name for field in column_type("value", source(registry)).fields}
    assert columns == ROW.keys()


@pytest.mark.parametrize("kind", TYPES)
def test_latest_version_decides_the_type_of_written_values(
    registry: StandIn, client: RegistryClient, kind: str
) -> None:
    if kind == "AVRO":
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
        AvroSerializer(json.dumps({"type": "record", "name": "R", "fields": fields}), client)({"id": 1}, topic="t")
    elif kind == "PROTOBUF":
        text = 'syntax = "proto3"; message Other {} message R { int64 id = 1; optional string note = 2; }'
        ProtobufSerializer(text, client)({}, topic="t")
    else:
        properties = {"id": {"type": "integer", "maximum": 9}, "note": {"type": "string"}}
        JsonSchemaSerializer(json.dumps({"type": "object", "properties": properties}), client)({}, topic="t")
    more = {"value_protobuf_message": "R"} if kind == "PROTOBUF" else {}
    columns = "id BIGINT NOT NULL"
    made = sink(registry, columns, use_latest_version="true", **more)
    values = written(made, columns, {"id": 7})
    assert len(registry.subjects["t-value"]) == 1
    assert read(source(registry, **more), *values) == [{"id": 7, "note": None}]
    if kind == "JSON":
        with pytest.raises(FormatError, match="its field 'id' does not match its JSON Schema"):
            written(made, columns, {"id": 10})
    with pytest.raises(OptionError, match="is of type"):
        sink(registry, columns, use_latest_version="true", value_schemaType=TYPES[TYPES.index(kind) - 1])


def test_references_of_the_latest_version(registry: StandIn, client: RegistryClient) -> None:
    client.register_schema("item.proto", Schema(SchemaType.PROTOBUF, ITEM))
    schema = Schema(SchemaType.PROTOBUF, PROTO, (Reference("item.proto", "item.proto", 1),))
    value = ProtobufSerializer(schema, client)({"id": 1, "item": {"name": "a"}}, topic="t")
    assert read(source(registry), value) == [{"id": 1, "item": {"name": "a"}}]
    columns = "id BIGINT, item STRUCT<name: STRING>"
    made = sink(registry, columns, use_latest_version="true")
    assert written(made, columns, {"id": 1, "item": {"name": "a"}}) == [value]


def test_avro_references_of_the_latest_version_are_written(registry: StandIn, client: RegistryClient) -> None:
    item = {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}]}
    client.register_schema("item", Schema(SchemaType.AVRO, json.dumps(item)))
    order = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}
    client.register_schema("t-value", Schema(SchemaType.AVRO, json.dumps(order), (Reference("Item", "item", 1),)))
    columns = "item STRUCT<name: STRING NOT NULL> NOT NULL"
    values = written(sink(registry, columns, use_latest_version="true"), columns, {"item": {"name": "a"}})
    assert read(source(registry), *values) == [{"item": {"name": "a"}}]


@pytest.mark.parametrize("kind", TYPES)
def test_bad_value_is_named_by_its_place_and_field(registry: StandIn, kind: str) -> None:
    columns = "id BIGINT NOT NULL, note STRING"
    (good,) = written(sink(registry, columns, value_schemaType=kind), columns, {"id": 1, "note": "a"})
    bad = {"AVRO": good[:6] + b"\x01", "PROTOBUF": good[:6] + b"\x08", "JSON": good[:5] + b'{"id":"x"}'}[kind]
    with pytest.raises(FormatError, match="Topic 't', partition 0, offset 101: ") as caught:
        read(source(registry), good, bad)
    assert kind != "JSON" or "field id" in str(caught.value)
    first, second, third = read(source(registry, mode="PERMISSIVE"), good, bad, good)
    assert (first, second) == (third, None)


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_schema_that_is_not_registered_is_an_error_without_automatic_registration(registry: StandIn, kind: str) -> None:
    with pytest.raises(OptionError, match="cannot be registered or found"):
        sink(registry, "id BIGINT", auto_register_schemas="false", value_schemaType=kind)
    assert registry.subjects == {}
    sink(registry, "id BIGINT", value_schemaType=kind)
    sink(registry, "id BIGINT", auto_register_schemas="false", value_schemaType=kind)


@pytest.mark.parametrize(
    ("kind", "columns", "problem"),
    [
        ("PROTOBUF", "d DATE", "'d' is of date, which Protobuf does not support"),
        ("PROTOBUF", "a ARRAY<ARRAY<INT>>", "'a' is of array<int>"),
        ("PROTOBUF", "`a b` INT", "'a b' cannot be a field of Protobuf"),
        ("PROTOBUF", "m MAP<DOUBLE, INT>", "keys of double"),
        ("JSON", "m MAP<DOUBLE, INT>", "keys of double"),
        ("XML", "a INT", "schemaType is 'XML'"),
    ],
)
def test_columns_without_a_schema(registry: StandIn, kind: str, columns: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        sink(registry, columns, value_schemaType=kind)


def test_recursive_and_unknown_schemas_have_no_columns(registry: StandIn, client: RegistryClient) -> None:
    client.register_schema("t-value", Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; message Node { Node next = 1; }'))
    with pytest.raises(OptionError, match="Node contains itself"):
        column_type("value", source(registry))
    with pytest.raises(OptionError, match="no message Nowhere"):
        column_type("value", source(registry, value_protobuf_message="Nowhere"))


def test_decimals_of_json(registry: StandIn) -> None:
    columns = "price DECIMAL(10,2)"
    values = written(sink(registry, columns, value_schemaType="JSON"), columns, {"price": decimal.Decimal("1.25")})
    assert values[0][5:] == b'{"price":1.25}'
    assert read(source(registry), *values) == [{"price": 1.25}]
