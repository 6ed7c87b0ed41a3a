"""POST /topics/TOPIC and /topics/TOPIC/partitions/PARTITION: records in one of the embedded formats.

All records of a request are appended to the user's producer before the first wait. The answer has one row for each
record in the order of the request: its partition and offset after the broker acknowledged it, or the error. A record
that could not be appended does not stop the records after it.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.responses import Response

from ottla.clients import AsyncProducer
from ottla.clients.errors import ClientError, InvalidTopic, UnknownTopicOrPartition
from ottla.clients.producer.delivery import AsyncDelivery
from ottla.rest.calls import Call, dump_json, parse_json
from ottla.rest.errors import (
    KAFKA_AUTHENTICATION,
    KAFKA_AUTHORIZATION,
    code_of_record,
    partition_not_found,
    topic_not_found,
)
from ottla.rest.schemas import registry
from ottla.rest.schemas.registry import KnownSchema, UserSchemas
from ottla.rest.v2 import bodies
from ottla.rest.v2.media_types import Format, answer_type, format_of_body
from ottla.schemas.model import Schema
from ottla.web.errors import HttpError

KEY_SCHEMA_MISSING: Final = 42201
VALUE_SCHEMA_MISSING: Final = 42202
_REQUEST: Final = frozenset({"records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"})
_RECORD: Final = frozenset({"partition", "key", "value"})
_STATUS_OF_CODE: Final = {KAFKA_AUTHENTICATION: 401, KAFKA_AUTHORIZATION: 403}

Encode: TypeAlias = Callable[[Any], bytes | None]
Row: TypeAlias = tuple[int | None, bytes | None, bytes | None]
"""Partition, key and value of one record."""


class Encoders(NamedTuple):
    """How keys and values become bytes, and the ids of their schemas."""

    key: Encode
    value: Encode
    key_schema_id: int | None = None
    value_schema_id: int | None = None


async def to_topic(call: Call) -> Response:
    """POST /topics/TOPIC."""
    return await _produce(call, None)


async def to_partition(call: Call) -> Response:
    """POST /topics/TOPIC/partitions/PARTITION."""
    number = call.path("partition")
    if not (number.isascii() and number.isdecimal()) or len(number) > 9:
        raise partition_not_found()
    return await _produce(call, int(number))


async def _produce(call: Call, partition: int | None) -> Response:
    format_ = format_of_body(call.request)
    media_type = answer_type(call.request)
    request = checked_request(parse_json(await call.body()))
    topic = call.path("topic")
    producer = call.clients.producer
    count = await partition_count(producer, topic)
    if partition is not None and partition >= count:
        count = await _current_count(call, topic)
        if partition >= count:
            raise partition_not_found()
    encoders = await _encoders(call, format_, topic, request)
    rows = encode(request["records"], encoders, partition)
    if any(row[0] is not None and row[0] >= count for row in rows):
        count = await _current_count(call, topic)
    deliveries = await append(producer, topic, rows, count)
    body, status = await outcome(deliveries, encoders)
    return Response(body, status, media_type=media_type)


def checked_request(given: Any) -> dict[str, Any]:
    """Check the form of the request. Raises HttpError."""
    records = bodies.fields(given, _REQUEST).get("records")
    if records is not None and not isinstance(records, list):
        raise HttpError(400, 400, "records must be an array.")
    if not records:
        raise bodies.unprocessable("records may not be empty")
    checked: dict[str, Any] = given
    return checked


async def partition_count(producer: AsyncProducer[bytes, bytes], topic: str) -> int:
    """Return the number of partitions of the topic. Raises HttpError if it does not exist."""
    try:
        return len(await producer.partitions_for(topic))
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise topic_not_found() from error


async def _current_count(call: Call, topic: str) -> int:
    """Return the number of partitions from the brokers: the topic may have more than the producer knows."""
    return len((await call.clients.admin.describe_topic(topic)).partitions)


async def _encoders(call: Call, format_: Format, topic: str, request: dict[str, Any]) -> Encoders:
    if format_ is Format.BINARY:
        return Encoders(from_base64, from_base64)
    if format_.schema_type is None:
        return Encoders(from_json, from_json)
    schemas = schemas_of(call)
    found = {}
    for part in ("key", "value"):
        schema_id, text = request.get(f"{part}_schema_id"), request.get(f"{part}_schema")
        if schema_id is not None:
            found[part] = await schemas.by_id(bodies.number(schema_id, f"{part}_schema_id"), format_.schema_type)
        elif text is not None:
            schema = Schema(format_.schema_type, bodies.text(text, f"{part}_schema"))
            found[part] = await schemas.register(f"{topic}-{part}", schema)
    key, value = found.get("key"), found.get("value")
    return Encoders(
        _with_schema(key, KEY_SCHEMA_MISSING, "keys but does not include key schema"),
        _with_schema(value, VALUE_SCHEMA_MISSING, "values but does not include value schema"),
        None if key is None else key.id,
        None if value is None else value.id,
    )


def schemas_of(call: Call) -> UserSchemas:
    """Return the schemas of the registry for the user. Raises HttpError without a registry."""
    part = call.proxy.parts[registry.PART]
    assert isinstance(part, registry.Schemas)
    return part.of(call.clients)


def _with_schema(schema: KnownSchema | None, missing: int, text: str) -> Encode:
    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            raise HttpError(422, missing, f"Request includes {text}")
        try:
            return schema.encode(value)
        except ValueError as error:
            raise HttpError(400, 400, f"Bad Request: {shown(value)}: {error}") from error

    return encode


def from_base64(value: Any) -> bytes | None:
    """Decode a key or value of the format binary. Raises HttpError."""
    if value is None:
        return None
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (TypeError, ValueError):  # binascii.Error is a ValueError
        raise HttpError(400, 400, f"data={shown(value)} is not a valid base64 string.") from None


def from_json(value: Any) -> bytes | None:
    """Encode a key or value of the format json."""
    return None if value is None else dump_json(value)


def shown(value: Any) -> str:
    """Return the beginning of a value for a message."""
    text = dump_json(value).decode()
    return text if len(text) <= 100 else f"{text[:100]}..."


def encode(records: Sequence[Any], encoders: Encoders, partition: int | None) -> list[Row]:
    """Return partition, key and value of each record. Raises HttpError for the first invalid record."""
    key_of, value_of = encoders.key, encoders.value
    rows = []
    for record in records:
        if not isinstance(record, dict):
            raise HttpError(400, 400, f"Each record must be an object, not {shown(record)}.")
        if not record.keys() <= _RECORD:
            bodies.fields(record, _RECORD)
        given = record.get("partition")
        if given is not None:
            given = bodies.number(given, "partition")
        rows.append((partition if given is None else given, key_of(record.get("key")), value_of(record.get("value"))))
    return rows


async def append(
    producer: AsyncProducer[bytes, bytes], topic: str, rows: Sequence[Row], count: int
) -> list[AsyncDelivery | ClientError]:
    """Append the records; returns the future of each, or the error of one that could not be appended.

    `count` is the number of partitions. The first wait for memory that fails is the last: the other records get the
    same error.
    """
    found: list[AsyncDelivery | ClientError] = []
    send = producer.send
    exhausted: ClientError | None = None
    for partition, key, value in rows:
        if partition is not None and partition >= count:
            found.append(UnknownTopicOrPartition(f"{topic} has no partition {partition}, only 0 to {count - 1}"))
            continue
        if exhausted is not None:
            found.append(exhausted)
            continue
        try:
            found.append(await send(topic, value, key, partition=partition))
        except ClientError as error:
            found.append(error)
            if error.retriable:
                exhausted = error
    return found


async def outcome(deliveries: Sequence[AsyncDelivery | ClientError], encoders: Encoders) -> tuple[bytes, int]:
    """Wait for all records; returns the body of the answer and its status."""
    rows: list[str] = []
    status = 200
    for delivery in deliveries:
        try:
            if isinstance(delivery, ClientError):
                raise delivery
            _, partition, offset, _ = await delivery
        except ClientError as error:
            code = code_of_record(error)
            if status == 200:
                status = _STATUS_OF_CODE.get(code, 200)
            text = dump_json(str(error)).decode()
            rows.append(f'{{"partition":null,"offset":null,"error_code":{code},"error":{text}}}')
        else:
            rows.append(f'{{"partition":{partition},"offset":{offset},"error_code":null,"error":null}}')
    ids = ("null" if each is None else str(each) for each in (encoders.key_schema_id, encoders.value_schema_id))
    key_id, value_id = ids
    body = f'{{"offsets":[{",".join(rows)}],"key_schema_id":{key_id},"value_schema_id":{value_id}}}'
    return body.encode(), status
