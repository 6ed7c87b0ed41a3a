"""Depth record: each field is valid in its schema, not only registered."""

from __future__ import annotations

import json
import logging
from itertools import count
from typing import Any

import pytest

from ottla.broker.contracts.checks import UnreadableSchema, create_check, record_name
from ottla.broker.contracts.source import Registered
from ottla.common.errors import ErrorCode
from ottla.common.work import SLICE_MS, Worker
from ottla.records import Codec
from ottla.schemas.model import Reference, Schema, SchemaType
from tests.unit.broker.harness import BrokerHarness, batch

from .support import ORDER_ID, StubRegistry, create_orders, framed, order, row_of, send, stored, use_registry
from .test_contracts import CODECS

PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "scores": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
}


@pytest.fixture
def registry(harness: BrokerHarness) -> StubRegistry:
    create_orders(harness, ottla_schema_validation_depth="record")
    return use_registry(harness)


def reasons(response: Any) -> list[tuple[int, str]]:
    return [(each.batch_index, each.batch_index_error_message) for each in response.record_errors]


@pytest.mark.parametrize("codec", CODECS)
def test_avro_records_are_checked_field_by_field(harness: BrokerHarness, registry: StubRegistry, codec: Codec) -> None:
    assert send(harness, order(1), None, order(2), codec=codec).error_code == 0
    response = send(harness, order(1), order(2)[:-1], order(3) + b"\0", framed(ORDER_ID, b"\2\4"), codec=codec)
    begin = f"The value does not match schema id {ORDER_ID}: "
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert reasons(response) == [
        (1, begin + "field 'address.zip' ends before its value does"),
        (2, begin + "has bytes after its last field"),
        (3, begin + "field 'customer' has an index beyond its union's branches"),
    ]
    assert len(stored(harness)) == 3


def test_each_id_of_a_batch_has_its_own_schema(harness: BrokerHarness, registry: StubRegistry) -> None:
    registry.register(8, "orders-value", "string")
    assert send(harness, order(), framed(8, b"\4hi"), order(2)).error_code == 0
    response = send(harness, order(), framed(8, b"\4h\xff"), order(2))
    assert reasons(response) == [(1, "The value does not match schema id 8: is not UTF-8")]


def test_id_that_was_known_without_its_schema_is_asked_for_again(harness: BrokerHarness) -> None:
    create_orders(harness)
    registry = use_registry(harness)
    assert send(harness, order()).error_code == 0
    harness.create("more", confluent_value_schema_validation="true", ottla_schema_validation_depth="record")
    registry.register(ORDER_ID, "more-value")

    response = row_of(harness.produce(("more", {0: batch(order()[:-1])})))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert registry.asked == [ORDER_ID, ORDER_ID]


def test_json_records_are_checked(harness: BrokerHarness, registry: StubRegistry) -> None:
    registry.register(8, "orders-value", PERSON, SchemaType.JSON)
    assert send(harness, framed(8, b'{"name": "Ada", "scores": [1, 2]}')).error_code == 0
    response = send(harness, framed(8, b'{"name": "Ada", "scores": [1, "x"]}'), framed(8, b"{}"), framed(8, b"{"))
    begin = "The value does not match schema id 8: "
    assert reasons(response)[:2] == [
        (0, begin + 'field \'scores[1]\' is invalid: "x" is not of type "integer"'),
        (1, begin + 'is invalid: "name" is a required property'),
    ]
    assert reasons(response)[2][1].startswith(begin + "is not JSON: ")


PROTO = """syntax = "proto3";
package shop;
message Order { int64 id = 1; string customer = 2; message Line { int32 count = 1; } }
message Refund { int64 id = 1; }
"""


def test_protobuf_records_are_checked(harness: BrokerHarness, registry: StubRegistry) -> None:
    registry.schemas[8] = Registered(frozenset({"orders-value"}), Schema(SchemaType.PROTOBUF, PROTO))
    order_of_ada = b"\x08\x07\x12\x03Ada"
    paths = {"Order": b"\0", "the same": b"\2\0", "Refund": b"\2\2", "Line": b"\4\0\0"}
    valid = [paths["Order"] + order_of_ada, paths["the same"] + order_of_ada]
    valid += [paths["Refund"] + b"\x08\x07", paths["Line"] + b"\x08\x07", paths["Order"]]
    assert send(harness, *[framed(8, each) for each in valid]).error_code == 0
    invalid = [b"\0\x12\x03Ad", b"\0\x12\x01\xff", b"\2\6", b"", b"\x80", b"\xc8\1", b"\1"]
    found = reasons(send(harness, *[framed(8, each) for each in invalid]))
    begin = "The value does not match schema id 8: "
    assert [row for row, _ in found] == list(range(len(invalid)))
    assert [text.startswith(begin + "is not a message shop.Order: ") for _, text in found[:2]] == [True, True]
    assert found[2][1] == begin + "has no valid type of message: the schema has no message at [3]"
    assert {text for _, text in found[3:5]} == {begin + "has no valid type of message: its path is incomplete"}
    assert found[5][1] == begin + "has no valid type of message: a path of 100 positions"


def test_required_fields_of_protobuf_are_checked(harness: BrokerHarness, registry: StubRegistry) -> None:
    text = 'syntax = "proto2"; message Order { required int64 id = 1; }'
    registry.schemas[8] = Registered(frozenset({"orders-value"}), Schema(SchemaType.PROTOBUF, text))
    assert send(harness, framed(8, b"\0\x08\x07")).error_code == 0
    assert reasons(send(harness, framed(8, b"\0"))) == [
        (0, "The value does not match schema id 8: lacks required fields: id")
    ]


def test_subject_can_be_the_name_of_a_protobuf_message() -> None:
    assert record_name(Schema(SchemaType.PROTOBUF, PROTO)) == "shop.Order"
    assert record_name(Schema(SchemaType.PROTOBUF, "nonsense")) is None
    assert record_name(Schema(SchemaType.JSON, json.dumps(PERSON))) == "Person"


def test_references_of_protobuf_are_resolved() -> None:
    address = Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; package a; message Address { int32 zip = 1; }')
    text = 'syntax = "proto3"; import "address.proto"; message Person { a.Address home = 1; }'
    person = Schema(SchemaType.PROTOBUF, text, (Reference("address.proto", "address", 1),))
    create_check(person, (("address.proto", address),))
    with pytest.raises(UnreadableSchema):
        create_check(person, ())


def test_references_of_avro_and_json_are_resolved() -> None:
    address = Schema(
        SchemaType.AVRO, '{"type": "record", "name": "a.Address", "fields": [{"name": "zip", "type": "int"}]}'
    )
    person = Schema(
        SchemaType.AVRO,
        '{"type": "record", "name": "a.Person", "fields": [{"name": "home", "type": "Address"}]}',
        (Reference("a.Address", "address", 1),),
    )
    create_check(person, (("a.Address", address),))
    with pytest.raises(UnreadableSchema, match="'Address', which is not defined"):
        create_check(person, ())
    positive = Schema(SchemaType.JSON, '{"type": "integer", "minimum": 1}')
    outer = Schema(SchemaType.JSON, '{"properties": {"n": {"$ref": "positive.json"}}}')
    create_check(outer, (("positive.json", positive),))
    with pytest.raises(UnreadableSchema, match=r"positive\.json"):
        create_check(outer, ())


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1/x.json", "file:///etc/hostname"])
def test_schema_cannot_make_the_broker_read_other_places(uri: str) -> None:
    with pytest.raises(UnreadableSchema, match="Retrieval is disabled"):
        create_check(Schema(SchemaType.JSON, json.dumps({"$ref": uri})), ())


def test_schema_that_cannot_be_checked_is_logged_and_its_ids_are_checked(
    harness: BrokerHarness, registry: StubRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.schemas[8] = Registered(frozenset({"orders-value"}), Schema(SchemaType.AVRO, '{"type": "nonsense"}'))
    with caplog.at_level(logging.WARNING):
        assert send(harness, framed(8, b"anything")).error_code == 0
    assert "Records with schema id 8 (AVRO) are checked by their schema id only" in caplog.text


def test_large_batch_is_checked_in_slices(
    harness: BrokerHarness, registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = count(step=SLICE_MS)
    monkeypatch.setattr(harness.loop, "monotonic_ms", lambda: next(passing))
    later: list[Any] = []
    harness.use_worker(Worker(harness.loop, later.append))
    waiting = send(harness, *[order()] * 20_000)
    iterations = 0
    while later:
        later.pop(0)()
        iterations += 1
    assert row_of(waiting.result()).error_code == 0
    assert iterations > 2
