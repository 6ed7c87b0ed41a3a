"""GET of records: polls of a consumer instance until the answer is complete, and records as JSON.

An answer is complete when the time of the read is over, when it has more than `fetch.min.bytes` bytes of keys and
values, or when the next record would exceed `max_bytes`. If the client has disconnected by then, its records return to
the instance.
"""

from __future__ import annotations

import binascii
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from ottla.clients.errors import ClientError, Closed
from ottla.rest.calls import Call
from ottla.rest.schemas.registry import MissingSchema, UserSchemas
from ottla.rest.v2.instances import Bytes, ConsumerInstance, instance_not_found
from ottla.rest.v2.media_types import Format
from ottla.web.errors import HttpError

SERIALIZATION_FAILED: Final = 40801
SLICE_S: Final = 0.25
"""How long one poll waits at most: other requests of the instance run between two polls."""

Part: TypeAlias = Callable[[bytes], Any]
"""Converts a key or value to a value of JSON for orjson. Raises ValueError for bytes that are not of the format."""


class Parts(NamedTuple):
    """How keys and values of a format become JSON. `load` gets the schema of a MissingSchema."""

    key: Part
    value: Part
    load: Callable[[int], Awaitable[None]] | None = None


class Answer:
    """The records of one answer."""

    __slots__ = ("_limit", "is_complete", "missing", "records", "rows", "size")

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes
        self.rows: list[dict[str, Any]] = []
        self.records: list[Bytes] = []
        self.size = 0
        self.is_complete = False
        self.missing: int | None = None
        """The id of a schema that the next record needs."""

    def take(self, polled: deque[Bytes], parts: Parts) -> None:
        """Take records while the next one fits. Raises HttpError unless the answer has records."""
        key_part, value_part, _ = parts
        add, total = self.rows.append, self.size
        taken = 0
        for record in polled:
            offset, _, key, value, _ = record
            size = total + (len(key) if key else 0) + (len(value) if value else 0)
            if size >= self._limit:
                self.is_complete = True
                break
            try:
                add(
                    {
                        "topic": record.topic,
                        "key": None if key is None else key_part(key),
                        "value": None if value is None else value_part(value),
                        "partition": record.partition,
                        "offset": offset,
                    }
                )
            except MissingSchema as error:
                self.missing = error.schema_id
                break
            except ValueError as error:
                if not self.rows:
                    raise unreadable(record, str(error)) from error
                self.is_complete = True
                break
            total = size
            taken += 1
        self.records.extend(polled.popleft() for _ in range(taken))
        self.size = total

    def body(self) -> bytes:
        """Return the records as a JSON array."""
        return orjson.dumps(self.rows)


async def read(
    instance: ConsumerInstance,
    answer: Answer,
    timeout_s: float,
    parts: Parts,
    call: Call,
) -> None:
    """Fill the answer; a stop of the proxy ends it early.

    Raises HttpError, or the error of a poll, unless the answer has records.
    """
    deadline = time.monotonic() + timeout_s
    min_bytes = instance.settings.min_bytes
    is_first = True
    while True:
        async with instance.lock:
            if instance.is_closed:
                raise instance_not_found()
            if is_first:
                instance.settle()
                is_first = False
            left_s = deadline - time.monotonic()
            if not instance.polled and left_s > 0:
                await _poll(instance, answer, min(left_s, SLICE_S))
            before = answer.size
            answer.take(instance.polled, parts)
            call.reserve(2 * (answer.size - before))
        if answer.missing is not None and parts.load is not None:
            schema_id, answer.missing = answer.missing, None
            await parts.load(schema_id)
            continue
        has_enough = answer.is_complete or answer.size > min_bytes >= 0
        if has_enough or deadline <= time.monotonic() or call.proxy.stop.is_set():
            return


async def _poll(instance: ConsumerInstance, answer: Answer, timeout_s: float) -> None:
    error, instance.error = instance.error, None
    try:
        if error is not None:
            raise error
        instance.polled.extend(await instance.consumer.poll(timeout_s))
    except Closed:
        raise instance_not_found() from None
    except ClientError as failed:
        if not answer.rows:
            raise
        instance.error = failed
        answer.is_complete = True


async def answered(instance: ConsumerInstance, answer: Answer, is_disconnected: Callable[[], Awaitable[bool]]) -> None:
    """Count the records as answered; if the client is not there any more, return them to the instance."""
    if answer.records and await is_disconnected():
        instance.polled.extendleft(reversed(answer.records))
    else:
        instance.note_answered(answer.records)


def binary(data: bytes) -> str:
    """A key or value of the format binary."""
    return binascii.b2a_base64(data, newline=False).decode()


def json(data: bytes) -> orjson.Fragment:
    """A key or value of the format json: it is checked, and stays as it is."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    return orjson.Fragment(data)


PARTS: Final = {Format.BINARY: Parts(binary, binary), Format.JSON: Parts(json, json)}


def with_schemas(schemas: UserSchemas, format_: Format) -> Parts:
    """Return the parts of a format with schemas."""
    kind = format_.schema_type
    assert kind is not None
    decode = functools.partial(schemas.decode, kind)
    return Parts(decode, decode, lambda schema_id: schemas.load(schema_id, kind))


def unreadable(record: Bytes, problem: str) -> HttpError:
    """Return the error of a record that is not of the instance's format."""
    where = f"{record.topic}-{record.partition} at offset {record.offset}"
    return HttpError(408, SERIALIZATION_FAILED, f"Error deserializing the record of {where}: {problem}")
