"""Pipelines whose values have schemas in a registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
)
from ottla.streams import Output, pipeline, run, stream, to
from tests.registry.stand_in import StandIn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

OLD = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
NEW = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
    }
)


@pipeline()
def large_orders(orders: Any = stream("orders", "avro", schema="registry")) -> list[Output]:
    return [to("large", orders.where("id > 1"), value="avro", schema="registry")]


def test_values_are_read_with_the_latest_schema_and_written_with_a_registered_one(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del ottla_spark  # `run` uses the session that there is
    with StandIn() as registry:
        monkeypatch.setenv("OTTLA_REGISTRY", registry.url)
        ottla.topic("orders", 1)
        old, new = (AvroSerializer(schema, schema_registry_url=registry.url) for schema in (OLD, NEW))
        ottla.produce("orders", old({"id": 1}, topic="orders"), old({"id": 2}, topic="orders"))
        ottla.produce("orders", new({"id": 3, "note": "a"}, topic="orders"))
        (status,) = run(large_orders, bootstrap=ottla.bootstrap, checkpoints=str(tmp_path), once=True)
        assert (status.phase, status.records) == ("done", 3)
        read = AvroDeserializer(schema_registry_url=registry.url)
        values = [read(record.value, topic="large") for record in ottla.records("large")]
        assert values == [{"id": 2, "note": "-"}, {"id": 3, "note": "a"}]
        assert "large-value" in registry.subjects


def test_each_output_has_its_registry_and_its_format(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del ottla_spark
    monkeypatch.setenv("USER_INFO", "ann:secret")
    with StandIn() as of_input, StandIn() as of_pipeline, StandIn() as of_run:
        monkeypatch.setenv("OTTLA_REGISTRY", "http://127.0.0.1:1")
        ottla.topic("orders", 1)
        config = {"url": of_input.url, "basic.auth.user.info": "${env:USER_INFO}"}

        def outputs(orders: Any = stream("orders", "avro", schema="registry", registry=config)) -> list[Output]:
            return [
                to("copies", orders, value="protobuf", schema="registry"),
                to("others", orders, value="json", schema="registry", registry=of_pipeline.url),
            ]

        assert "secret" not in repr(pipeline(outputs))
        write = AvroSerializer(OLD, schema_registry_url=of_input.url)
        ottla.produce("orders", write({"id": 1}, topic="orders"))
        made = pipeline(name="copies")(outputs)
        (status,) = run(made, bootstrap=ottla.bootstrap, checkpoints=str(tmp_path), once=True, registry=of_run.url)
        assert (status.phase, status.records) == ("done", 1)
        assert set(of_input.authorizations[1:]) == {"Basic YW5uOnNlY3JldA=="}
        assert set(of_run.authorizations) | set(of_pipeline.authorizations) == {None}
        assert list(of_run.subjects) == ["copies-value"]
        assert list(of_pipeline.subjects) == ["others-value"]
        read = ProtobufDeserializer(schema_registry_url=of_run.url)
        assert [read(record.value, topic="copies").id for record in ottla.records("copies")] == [1]
        read_json = JsonSchemaDeserializer(schema_registry_url=of_pipeline.url)
        assert [read_json(record.value, topic="others") for record in ottla.records("others")] == [{"id": 1}]
