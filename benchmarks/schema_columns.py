"""Decoding Avro values with Confluent's wire format: records per CPU-second of this process.

    python -m benchmarks.schema_columns [ROUNDS]

Contenders: confluent-kafka's AvroDeserializer and Ottla's, one value at a time, and Ottla's whole Arrow columns, with
one schema id and with two ids that alternate. Each round decodes the same values with every contender, in turn, so that
the machine's speed changes for all of them. The registry is a stand-in on this machine, and its answers are cached.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.registry.stand_in import StandIn

from ottla.clients.serializers import AvroDeserializer, AvroSerializer, SerializationContext
from ottla.registry_client import RegistryClient

VALUES = 20_000
CONTEXT = SerializationContext("orders", "value")
FIELDS: list[Any] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "amount", "type": "double"},
    {
        "name": "items",
        "type": {
            "type": "array",
            "items": {
                "type": "record",
                "name": "Item",
                "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
            },
        },
    },
    {"name": "note", "type": ["null", "string"], "default": None},
]
NEWER: list[Any] = [*FIELDS, {"name": "channel", "type": "string", "default": "shop"}]


def schema(fields: list[Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def value(number: int) -> dict[str, Any]:
    items = [{"sku": f"sku-{each}", "count": each} for each in range(number % 4)]
    note = None if number % 2 else "please ring twice"
    return {"id": number, "customer": f"customer {number % 1000}", "amount": number / 2, "items": items, "note": note}


def contenders(url: str) -> dict[str, Callable[[], object]]:
    """Return the contenders by name; each decodes VALUES values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
        from confluent_kafka import serialization
        from confluent_kafka.schema_registry import SchemaRegistryClient, avro

    registry = RegistryClient(url=url)
    old = AvroSerializer(schema(FIELDS), registry)
    one = [old(value(number), CONTEXT) for number in range(VALUES)]
    new = AvroSerializer(schema(NEWER), registry)
    two = [(new if number % 2 else old)({**value(number), "channel": "web"}, CONTEXT) for number in range(VALUES)]
    theirs = avro.AvroDeserializer(SchemaRegistryClient({"url": url}))
    their_context = serialization.SerializationContext("orders", serialization.MessageField.VALUE)
    ours = AvroDeserializer(schema(FIELDS), registry)
    columns, latest = ours.columns(), AvroDeserializer(None, registry).columns()
    one_column, two_column = pa.array(one, pa.binary()), pa.array(two, pa.binary())
    ours_single = AvroDeserializer(None, registry)
    assert ours_single(one[5], CONTEXT) == theirs(one[5], their_context) == value(5)
    assert columns.decode(one_column, "orders")[0][5].as_py() == value(5)
    return {
        "confluent-kafka, single values": lambda: [theirs(each, their_context) for each in one],
        "Ottla, single values": lambda: [ours_single(each, topic="orders") for each in one],
        "Ottla, a column of one schema": lambda: columns.decode(one_column, "orders"),
        "Ottla, a column of two schemas": lambda: latest.decode(two_column, "orders"),
    }


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with StandIn() as registry:
        every = contenders(registry.url)
        rates: dict[str, list[float]] = {name: [] for name in every}
        for _ in range(rounds + 1):  # the first round warms up
            for name, decode in every.items():
                started_s = time.process_time()
                decode()
                rates[name].append(VALUES / (time.process_time() - started_s) / 1000)
        base = statistics.median(rates["confluent-kafka, single values"][1:])
        for name, found in rates.items():
            median = statistics.median(found[1:])
            print(f"{name:34} {median:8.0f} krec per CPU-second  {median / base:5.1f} times")


if __name__ == "__main__":
    main()
