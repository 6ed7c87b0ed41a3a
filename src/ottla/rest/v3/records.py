"""POST topics/TOPIC/records: a stream of records, answered by a stream of their positions; and `records:batch`.

The body of `records` is a sequence of JSON objects without a separator. The records of each part of the body that
arrives are sent together, and answered in their order when the broker has acknowledged them. The next part is read
then, so that a client that sends faster than the brokers write is slowed down. The status is 200; each record has its
own `error_code`. An error of the stream itself ends it: the last object of the answer says why.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.clients.errors import ClientError, UnknownTopicOrPartition
from ottla.clients.producer.delivery import AsyncDelivery
from ottla.rest.calls import Call, dump_json, json_response, parse_json
from ottla.rest.errors import of_client, partition_not_found
from ottla.rest.v3.json_stream import JsonObjects, StreamError
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import bad_request, checked, cluster_of, object_body
from ottla.rest.v3.values import NOTHING, Encoded, Values, from_base64
from ottla.web.errors import HttpError
from ottla.web.responses import JSON

OK: Final = 200
MULTI_STATUS: Final = 207
_BATCH_ERROR: Final = 42208
_MOST_ENTRIES: Final = 10
_LONGEST_ID: Final = 80
_PATH: Final = "/clusters/{cluster}/topics/{topic}/records"


class Sent(NamedTuple):
    """A record that was sent, or the reason why not."""

    delivery: AsyncDelivery | None
    error: HttpError | None
    key: Encoded = NOTHING
    value: Encoded = NOTHING


async def produce(call: Call) -> Response:
    """POST records."""
    _, links = await cluster_of(call)
    call.clients.uses += 1  # until the end of the stream, after this handler has returned
    return _Stream(call, links.cluster_id)


class _Stream(Response):
    """The answers to a stream of records. Starlette's StreamingResponse would read the body of the request."""

    def __init__(self, call: Call, cluster_id: str) -> None:
        super().__init__(media_type=JSON)
        del self.headers["content-length"]
        self._call = call
        self._cluster_id = cluster_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - starlette's signature
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part in _answers(self._call, self._cluster_id):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._call.proxy.pool.leave(self._call.clients)


async def _answers(call: Call, cluster_id: str) -> AsyncIterator[bytes]:
    """Send the records of the body as they arrive, and return their answers."""
    objects = JsonObjects(call.proxy.settings.request_max_bytes)
    is_empty = True
    refusal: HttpError | None = None
    values = Values(call, call.path("topic"))
    try:
        async for part in call.request.stream():
            records = objects.feed(part)
            if records:
                refusal = await _refusal(call) if is_empty else refusal
                is_empty = False
                sent = [Sent(None, refusal) if refusal else await _send_text(call, values, text) for text in records]
                yield await _joined(call, cluster_id, sent)
        objects.finish()
        if is_empty:
            yield _line(_error(HttpError(422, 42206, "Payload error. Request body is empty. Data is required.")))
    except StreamError as error:
        yield _line(_error(bad_request(f"Error processing message: {error}")))
    except HttpError as error:  # the body is late or too large
        yield _line(_error(error))
    except ClientDisconnect:
        return


async def _refusal(call: Call) -> HttpError | None:
    """Return the reason why no record can be sent to the topic, if there is one: each record has to wait for it."""
    try:
        await call.clients.producer.partitions_for(call.path("topic"))
    except ClientError as error:
        return of_client(error)
    return None


async def _joined(call: Call, cluster_id: str, sent: Sequence[Sent]) -> bytes:
    """Wait for records, and return their answers in one piece."""
    topic = call.path("topic")
    return b"".join([_line(await _outcome(each, cluster_id, topic)) for each in sent])


def _line(answer: object) -> bytes:
    return dump_json(answer) + b"\r\n"


def _error(error: HttpError) -> dict[str, Any]:
    return {"error_code": error.error_code, "message": error.message}


async def _outcome(sent: Sent, cluster_id: str, topic: str) -> dict[str, Any]:
    """Wait for a record; returns its position, or its error."""
    if sent.delivery is None:
        assert sent.error is not None
        return _error(sent.error)
    try:
        position = await sent.delivery
    except ClientError as error:
        return _error(of_client(error))
    answer: dict[str, Any] = {
        "error_code": OK,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": position.partition,
        "offset": position.offset,
    }
    if position.timestamp >= 0:
        answer["timestamp"] = _iso(position.timestamp)
    if sent.key.row is not None:
        answer["key"] = sent.key.row
    if sent.value.row is not None:
        answer["value"] = sent.value.row
    return answer


async def produce_batch(call: Call) -> Response:
    """POST records:batch: up to ten records with ids; the answer lists successes and failures."""
    _, links = await cluster_of(call)
    entries = checked(await object_body(call, "entries"), "entries", list)
    ids = [_id_of(entry) for entry in entries]
    if not ids:
        raise _batch_error("Empty batch.")
    if len(ids) > _MOST_ENTRIES:
        raise _batch_error("Too many entries in batch.")
    if len(set(ids)) < len(ids):
        raise _batch_error("Batch entry IDs are not distinct.")
    refusal = await _refusal(call)
    values = Values(call, call.path("topic"))
    sent = [Sent(None, refusal) if refusal else await _send(call, values, entry) for entry in entries]
    successes: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for name, each in zip(ids, sent, strict=True):
        outcome = await _outcome(each, links.cluster_id, call.path("topic"))
        if outcome["error_code"] == OK:
            del outcome["error_code"]
            successes.append({"id": name, **outcome})
        else:
            failures.append({"id": name, **outcome})
    return json_response({"successes": successes, "failures": failures}, MULTI_STATUS)


def _id_of(entry: Any) -> str:
    """Return the id of an entry. Raises HttpError."""
    name = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_ID:
        raise _batch_error("Batch entry ID is not a valid identifier.")
    return name


def _batch_error(reason: str) -> HttpError:
    return HttpError(422, _BATCH_ERROR, f"Error producing batch. {reason}")


# -- one record ----------------------------------------------------------------------------------------------------


async def _send_text(call: Call, values: Values, text: bytes) -> Sent:
    try:
        return await _send(call, values, parse_json(text))
    except HttpError as error:
        return Sent(None, error)


async def _send(call: Call, values: Values, record: Mapping[str, Any]) -> Sent:
    """Send a record, and do not wait for it."""
    try:
        partition = checked(record, "partition_id", int)
        if partition is not None and partition < 0:
            raise partition_not_found()
        key = await values.encode(record, "key")
        value = await values.encode(record, "value")
        headers = _headers(checked(record, "headers", list, ()))
        timestamp_ms = _timestamp(checked(record, "timestamp", str))
        producer, topic = call.clients.producer, call.path("topic")
        if partition is not None and partition >= len(await producer.partitions_for(topic)):
            raise UnknownTopicOrPartition(f"Topic {topic} has no partition {partition}")
        delivery = await producer.send(
            topic, value.data, key.data, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
    except ClientError as error:
        return Sent(None, of_client(error))
    except HttpError as error:
        return Sent(None, error)
    return Sent(delivery, None, key, value)


def _headers(given: Sequence[Any]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record. Raises HttpError."""
    found: list[tuple[str, bytes | None]] = []
    for header in given:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise bad_request('headers must be an array of objects such as {"name": ..., "value": ...}.')
        value = header.get("value")
        found.append((header["name"], None if value is None else from_base64(value)))
    return found


def _timestamp(text: str | None) -> int | None:
    """Return a time in ISO 8601 as ms since the epoch. Raises HttpError."""
    if text is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise bad_request(f"timestamp {text} is not a time such as 2021-02-05T19:14:42Z.") from None
    if moment.tzinfo is None:
        raise bad_request(f"timestamp {text} has no time zone.")
    return round(moment.timestamp() * 1000)


def _iso(timestamp_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


OPERATIONS: Final = (
    Operation("POST", _PATH, produce, "Produce a stream of records", "ProduceResponse", 200, "ProduceRecord"),
    Operation(
        "POST", f"{_PATH}:batch", produce_batch, "Produce a batch of records with ids", "ProduceBatchResponse",
        MULTI_STATUS, "ProduceBatch",
    ),
)  # fmt: skip
