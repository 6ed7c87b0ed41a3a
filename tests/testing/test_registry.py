"""The fixture of a schema registry, as a user has it."""

from __future__ import annotations

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from ottla.testing import Ottla, RegistryThread


def test_client_registers_and_reads(ottla: Ottla, ottla_registry: RegistryThread) -> None:
    schema = Schema('{"type": "record", "name": "Flight", "fields": []}', "AVRO")
    with SchemaRegistryClient({"url": ottla_registry.url}) as client:
        schema_id = client.register_schema("flights-value", schema)
        assert client.get_schema(schema_id).schema_str
        assert client.get_subjects() == ["flights-value"]
    assert ottla.records("_schemas")


def test_each_test_has_an_empty_registry(ottla_registry: RegistryThread) -> None:
    with SchemaRegistryClient({"url": ottla_registry.url}) as client:
        assert client.get_subjects() == []
