"""GET /topics/TOPIC/events: a stream that ends when the client disconnects, or the proxy stops.

A stream has a consumer without a group. It polls only after the client has read enough of the records before: a slow
client slows its own fetches, and at most `queued.max.bytes` of records wait for it. A client that reads nothing for
`events.send.timeout.ms` is disconnected.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.clients import AsyncConsumer
from ottla.clients.consumer import Record
from ottla.clients.errors import ClientError, InvalidTopic, UnknownTopicOrPartition, Wakeup
from ottla.common.ids import TopicPartition
from ottla.rest.calls import Call, Proxy
from ottla.rest.errors import of_client, overloaded, too_many_requests, topic_not_found
from ottla.rest.events import rows
from ottla.rest.events.positions import Start, event_id, parse_event_id, parse_partitions, parse_start
from ottla.rest.schemas.registry import PART as SCHEMAS
from ottla.rest.schemas.registry import MissingSchema, Schemas
from ottla.web.errors import HttpError

PART: Final = "events"
MEDIA_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 3_000
RECORDS: Final = 200
"""How many records are one write."""
_FIRST_POLL_S: Final = 0.25
_LOADS: Final = 4
"""How often the schemas of a record are loaded: key and value, and twice more if the cache drops one meanwhile."""
_CLOSE_S: Final = 5.0
_CONSUMER: Final = {
    "auto.offset.reset": "earliest",
    "fetch.max.bytes": 256 * 1024,
    "max.partition.fetch.bytes": 256 * 1024,
    "queued.max.bytes": 512 * 1024,
}


class Streams:
    """The streams of each user."""

    def __init__(self) -> None:
        self.of_user: Counter[str] = Counter()

    def enter(self, owner: str, most: int, most_of_user: int) -> None:
        """Count a stream. Raises HttpError. Each call needs a `leave`."""
        if self.of_user[owner] >= most_of_user:
            raise too_many_requests(f"You have {self.of_user[owner]} event streams, the limit for a user.")
        if self.of_user.total() >= most:
            raise overloaded(f"The proxy has {most} event streams, its limit: try again later.")
        self.of_user[owner] += 1

    def leave(self, owner: str) -> None:
        """Count the end of a stream."""
        self.of_user[owner] -= 1
        if self.of_user[owner] <= 0:
            del self.of_user[owner]

    def sweep(self) -> None:
        """Streams end by themselves."""

    async def close(self) -> None:
        """Streams end when the proxy stops."""


async def events(call: Call) -> Response:
    """GET /topics/TOPIC/events."""
    request = call.request
    accept = request.headers.get("accept", "*/*")
    if not any(each in accept for each in (MEDIA_TYPE, "text/*", "*/*")):
        raise HttpError(406, 406, "HTTP 406 Not Acceptable")
    query = request.query_params
    parts = _parts(call, query.get("format", "text"), query.get("key_format"))
    start = parse_start(query.get("from", "end"))
    resumed = parse_event_id(request.headers.get("last-event-id") or query.get("last_event_id"))
    topic = call.path("topic")
    try:
        description = await call.clients.admin.describe_topic(topic)
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise topic_not_found() from error
    partitions = parse_partitions(query.get("partition"), [each.partition for each in description.partitions])
    offsets = await _offsets(call, topic, partitions, start)
    offsets.update((partition, offset) for partition, offset in resumed.items() if partition in offsets)
    return await _open(call, topic, offsets, parts)


def _parts(call: Call, value_format: str, key_format: str | None) -> rows.Parts:
    """Return how keys and values become JSON; a key has the format of the value by default. Raises HttpError."""
    formats = {"key_format": value_format if key_format is None else key_format, "format": value_format}
    for name, given in formats.items():
        if given not in rows.NAMES:
            raise HttpError(400, 400, f"{name} must be one of {', '.join(rows.NAMES)}.")
    if rows.SCHEMA_FORMATS.keys().isdisjoint(formats.values()):
        return rows.Parts(rows.FORMATS[formats["key_format"]], rows.FORMATS[value_format])
    registry = call.proxy.parts[SCHEMAS]
    assert isinstance(registry, Schemas)
    schemas = registry.of(call.clients)
    key, value = (
        rows.with_schema(schemas, rows.SCHEMA_FORMATS[given]) if given in rows.SCHEMA_FORMATS else rows.FORMATS[given]
        for given in formats.values()
    )
    return rows.Parts(key, value, schemas.load)


async def _offsets(call: Call, topic: str, partitions: list[int], start: Start) -> dict[int, int]:
    """Return the first offset of each partition."""
    if start.offset is not None:
        return dict.fromkeys(partitions, start.offset)
    assert start.lookup is not None
    admin = call.clients.admin
    tps = [TopicPartition(topic, partition) for partition in partitions]
    found = await admin.list_offsets(dict.fromkeys(tps, start.lookup))
    offsets = {tp.partition: found[tp].offset for tp in tps}
    if start.before_end:
        first = await admin.list_offsets(dict.fromkeys(tps, -2))
        return {tp.partition: max(first[tp].offset, offsets[tp.partition] - start.before_end) for tp in tps}
    if min(offsets.values(), default=0) < 0:  # no record is as young as the time
        end = await admin.list_offsets(dict.fromkeys(tps, -1))
        return {tp.partition: end[tp].offset if offsets[tp.partition] < 0 else offsets[tp.partition] for tp in tps}
    return offsets


async def _open(call: Call, topic: str, offsets: dict[int, int], parts: rows.Parts) -> Response:
    """Return the stream, after a first poll: missing rights become a status."""
    settings = call.proxy.settings
    owner = call.clients.owner
    streams = call.proxy.parts[PART]
    assert isinstance(streams, Streams)
    streams.enter(owner, settings.events_max, settings.events_per_user_max)
    consumer = call.clients.consumer(dict(_CONSUMER))
    try:
        consumer.assign([TopicPartition(topic, partition) for partition in offsets])
        for partition, offset in offsets.items():
            consumer.seek((topic, partition), offset)
        first = await consumer.poll(_FIRST_POLL_S, max_records=RECORDS)
    except BaseException:
        streams.leave(owner)
        await consumer.close(_CLOSE_S)
        raise
    return EventStream(call.proxy, streams, owner, consumer, Events(offsets, parts, first))


class Events:
    """The events of a stream as text, and the offsets of the next ones."""

    def __init__(self, offsets: dict[int, int], parts: rows.Parts, first: list[Record[bytes, bytes]]) -> None:
        self.first = first
        self.failure: HttpError | None = None
        """Why the stream ends: the registry does not answer for the next record."""
        self._offsets = offsets
        self._parts = parts

    def begin(self) -> bytes:
        """Return the beginning: when to connect again after an end, and an id from which that continues."""
        return f"retry: {RETRY_MS}\nid: {event_id(self._offsets)}\n\n".encode()

    async def text(self, records: list[Record[bytes, bytes]]) -> bytes:
        """Return the events of these records, which a poll returned; those before a `failure`."""
        found: list[str] = []
        offsets = self._offsets
        partition, others = -1, ""
        for record in records:
            if record.partition != partition:
                # The records of a partition are adjacent, so that the ids of the others are the same.
                partition = record.partition
                others = "".join(f"{each}:{offset}," for each, offset in offsets.items() if each != partition)
            try:
                data = await self._row(record)
            except HttpError as error:
                self.failure = error
                break
            offsets[partition] = record.offset + 1
            found.append(f"id: {others}{partition}:{record.offset + 1}\ndata: {data}\n\n")
        return "".join(found).encode()

    async def _row(self, record: Record[bytes, bytes]) -> str:
        """Return a record as JSON, after its schemas are cached. Raises HttpError."""
        for _ in range(_LOADS):
            try:
                return rows.row(record, self._parts)
            except MissingSchema as missing:
                assert self._parts.load is not None
                await self._parts.load(missing.schema_id, missing.kind)
        raise overloaded("The streams of the proxy use more schemas than it caches: try again later.")


class EventStream(Response):
    """The stream as a response."""

    def __init__(
        self, proxy: Proxy, streams: Streams, owner: str, consumer: AsyncConsumer[bytes, bytes], text: Events
    ) -> None:
        super().__init__(status_code=200, media_type=MEDIA_TYPE)
        self.raw_headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        self._proxy = proxy
        self._streams = streams
        self._owner = owner
        self._consumer = consumer
        self._events = text
        self._timeout_s = proxy.settings.seconds("events_send_timeout_ms")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end."""
        del scope
        ending = asyncio.create_task(self._wait_for_end(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._write(send, self._events.begin())
            await self._stream(send)
        except TimeoutError:
            pass  # the client does not read
        finally:
            ending.cancel()
            self._streams.leave(self._owner)
            await self._consumer.close(_CLOSE_S)

    async def _stream(self, send: Send) -> None:
        records = self._events.first
        keepalive_s = self._proxy.settings.seconds("events_keepalive_ms")
        last = b""
        while True:
            await self._write(send, await self._events.text(records) if records else b": keep-alive\n\n")
            if self._events.failure is not None:
                last = _error_event(self._events.failure)
                break
            try:
                records = await self._consumer.poll(keepalive_s, max_records=RECORDS)
            except Wakeup:
                break
            except ClientError as error:
                last = _error_event(of_client(error))
                break
        await self._write(send, last, more=False)

    async def _write(self, send: Send, data: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._timeout_s):
            await send({"type": "http.response.body", "body": data, "more_body": more})

    async def _wait_for_end(self, receive: Receive) -> None:
        """End the stream when the client disconnects, or the proxy stops."""
        disconnect = asyncio.create_task(_disconnected(receive))
        stop = asyncio.create_task(self._proxy.stop.wait())
        try:
            await asyncio.wait({disconnect, stop}, return_when=asyncio.FIRST_COMPLETED)
            self._consumer.wakeup()
        finally:
            disconnect.cancel()
            stop.cancel()


def _error_event(error: HttpError) -> bytes:
    return f"event: error\ndata: {orjson.dumps(error.body()).decode()}\n\n".encode()


async def _disconnected(receive: Receive) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
