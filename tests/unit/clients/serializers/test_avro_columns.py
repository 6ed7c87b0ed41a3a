"""Columns of Avro values against a registry on real HTTP, compared with single values."""

import json

import pyarrow as pa
import pytest

from ottla.clients import ConfigurationError
from ottla.clients.deferred import Deferred
from ottla.clients.serializers import AvroDeserializer, AvroSerializer
from ottla.registry_client import Reference, RegistryClient, Schema, SchemaType
from tests.registry.stand_in import StandIn


def record(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": "-"}
OLD, NEW = record(ID), record(ID, NOTE)


@pytest.fixture
def registry():
    with StandIn() as running:
        yield running


@pytest.fixture
def client(registry):
    with RegistryClient(url=registry.url, retries_wait_ms=1) as made:
        yield made


def test_several_schema_ids_are_resolved_to_the_latest_version_in_their_order(client):
    old, new = AvroSerializer(OLD, client), AvroSerializer(NEW, client)
    first = old({"id": 0}, topic="t")
    values = [first, new({"id": 1, "note": "a"}, topic="t"), None, old({"id": 2}, topic="t"), None]
    column, bad = AvroDeserializer(None, client).columns().decode(pa.array(values, pa.binary()), "t")
    assert column.to_pylist() == [{"id": 0, "note": "-"}, {"id": 1, "note": "a"}, None, {"id": 2, "note": "-"}, None]
    assert bad == []


def test_reader_schema_is_the_type_of_the_column(client):
    values = [AvroSerializer(NEW, client)({"id": 1, "note": "a"}, topic="t")]
    columns = AvroDeserializer(OLD, client).columns()
    assert columns.arrow_type == pa.struct([("id", pa.int64())])
    assert columns.decode(pa.array(values), "t")[0].to_pylist() == [{"id": 1}]


def test_one_schema_id_with_nulls_and_slices(client):
    serializer = AvroSerializer(OLD, client)
    values = pa.array([None, *(serializer({"id": i}, topic="t") for i in range(5)), None], pa.binary())
    columns = AvroDeserializer(None, client).columns()
    assert columns.decode(values.slice(2, 5), "t")[0].to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}, None]
    assert columns.decode(values.slice(0, 1), "t")[0].to_pylist() == [None]


def test_invalid_values_are_null_with_row_field_and_reason(client):
    good = AvroSerializer(NEW, client)({"id": 1, "note": "a"}, topic="t")
    client.register_schema("other", Schema(SchemaType.JSON, "{}"))
    values = [good, b"x", good[:-1], b"\0\0\0\0\x09\x02", b"\0\0\0\0\2{}", good]
    column, bad = AvroDeserializer(None, client).columns().decode(pa.array(values), "t")
    assert [value is not None for value in column.to_pylist()] == [True, False, False, False, False, True]
    assert [row for row, _, _ in bad] == [1, 2, 3, 4]
    assert bad[0][2] == "does not begin with the header of Confluent's wire format"
    assert bad[1][1:] == ("note", "ends before its value does")
    assert "schema 9, which the registry does not have" in bad[2][2]
    assert "of type JSON" in bad[3][2]


def test_values_of_a_schema_that_the_reader_cannot_read_are_invalid(client):
    good = AvroSerializer(OLD, client)({"id": 1}, topic="t")
    reader = record({"name": "missing", "type": "int"})
    column, bad = AvroDeserializer(reader, client).columns().decode(pa.array([good]), "t")
    assert column.to_pylist() == [None]
    assert "'missing' is not in the writer's schema" in bad[0][2]


def test_references(client):
    client.register_schema("items", Schema(SchemaType.AVRO, '{"type": "enum", "name": "Kind", "symbols": ["A", "B"]}'))
    text = record({"name": "kind", "type": "Kind"})
    schema = Schema(SchemaType.AVRO, text, (Reference("Kind", "items", 1),))
    values = [AvroSerializer(schema, client)({"kind": "B"}, topic="t")]
    assert AvroDeserializer(None, client).columns().decode(pa.array(values), "t")[0].to_pylist() == [{"kind": "B"}]


def test_schema_without_a_column_type_is_an_error(client):
    recursive = record({"name": "next", "type": ["null", "Order"]})
    with pytest.raises(ConfigurationError, match="column"):
        AvroDeserializer(recursive, client).columns()


def test_asyncio_clients_load_schemas_outside_of_the_call(client):
    values = pa.array([AvroSerializer(OLD, client)({"id": 1}, topic="t")])
    columns = AvroDeserializer(None, client).for_client("value", deferring=True).columns()
    with pytest.raises(Deferred) as caught:
        columns.decode(values, "t")
    caught.value.resolve()
    assert columns.decode(values, "t")[0].to_pylist() == [{"id": 1}]
