"""The resources of consumer instances: /consumers/GROUP and /consumers/GROUP/instances/INSTANCE/..."""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from starlette.responses import Response

from ottla.clients.errors import ConfigurationError, NotAssigned
from ottla.clients.offsets import OffsetAndMetadata
from ottla.common.errors import KafkaError
from ottla.common.expressions import Matcher, compile_expression
from ottla.common.ids import TopicPartition
from ottla.rest.calls import Call, Handler, json_response
from ottla.rest.errors import partition_not_found
from ottla.rest.settings import MOST_FETCH_MIN_BYTES, RestSettings
from ottla.rest.v2 import bodies, reading
from ottla.rest.v2.bodies import unprocessable
from ottla.rest.v2.instances import ConsumerInstance, InstanceKey, Instances, InstanceSettings
from ottla.rest.v2.media_types import Format, answer_type, check_body, format_of_answer
from ottla.rest.v2.produce import schemas_of
from ottla.web.errors import HttpError

PART: Final = "v2"
INVALID_CONFIG: Final = 42204
CONSTRAINT: Final = 40001
FORMAT_MISMATCH: Final = 40601
ILLEGAL_STATE: Final = 40903

_NEW_INSTANCE: Final = {
    "id", "name", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "responseMinBytes",
    "consumer.request.timeout.ms", "requestWaitMs",
}  # fmt: skip
_POSITION: Final = frozenset({"topic", "partition", "offset", "metadata"})
_TIMESTAMP: Final = frozenset({"topic", "partition", "timestamp", "metadata"})
_LONGEST_NAME: Final = 249
_MOST_SECONDS: Final = 2**40

InstanceHandler: TypeAlias = Callable[[Call, ConsumerInstance], Awaitable[Response]]


def instances_of(call: Call) -> Instances:
    """Return the instances of the proxy."""
    part = call.proxy.parts[PART]
    assert isinstance(part, Instances)
    return part


def key_of(call: Call) -> InstanceKey:
    """Return the identity of the instance in the path."""
    return InstanceKey(call.clients.owner, call.path("group"), call.path("instance"))


def for_instance(handler: InstanceHandler, *, checks_accept: bool = True) -> Handler:
    """Return the handler of a request to an existing instance."""

    async def handle(call: Call) -> Response:
        if call.request.method == "POST":
            check_body(call.request)
        if checks_accept:
            answer_type(call.request)
        instances = instances_of(call)
        instance = instances.enter(key_of(call))
        try:
            return await handler(call, instance)
        finally:
            instances.leave(instance)

    return handle


# -- instances ---------------------------------------------------------------------------------------------------


async def create(call: Call) -> Response:
    """POST /consumers/GROUP: a new instance."""
    check_body(call.request)
    media_type = answer_type(call.request)
    given = bodies.fields(await call.json() or {}, _NEW_INSTANCE)
    settings = call.proxy.settings
    group = call.path("group")
    name = given.get("id") or given.get("name") or _new_name(settings)
    name = bodies.text(name, "name")
    if len(name) > _LONGEST_NAME or "/" in name:
        raise unprocessable(f"name may have at most {_LONGEST_NAME} characters, and no slash")
    chosen = instance_settings(given, settings, group)
    try:
        instances_of(call).create(InstanceKey(call.clients.owner, group, name), chosen, call.clients)
    except ConfigurationError as error:
        raise HttpError(422, INVALID_CONFIG, f"Invalid consumer configuration: {error}") from error
    uri = f"{_base_url(call)}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
    return json_response({"instance_id": name, "base_uri": uri}, media_type=media_type)


async def delete(call: Call) -> Response:
    """DELETE /consumers/GROUP/instances/INSTANCE."""
    answer_type(call.request)
    await instances_of(call).delete(key_of(call))
    return Response(status_code=204)


def instance_settings(given: dict[str, Any], settings: RestSettings, group: str) -> InstanceSettings:
    """Return the settings of a new instance. Raises HttpError."""
    min_bytes = _either(given, "fetch.min.bytes", "responseMinBytes")
    if min_bytes is not None and not -1 <= min_bytes <= MOST_FETCH_MIN_BYTES:
        text = f"fetch.min.bytes is {min_bytes}; it must be from -1 to {MOST_FETCH_MIN_BYTES}"
        raise HttpError(
            422, CONSTRAINT, f"Invalid consumer configuration. It does not abide by the constraints: {text}"
        )
    timeout_ms = _either(given, "consumer.request.timeout.ms", "requestWaitMs")
    consumer: dict[str, object] = {
        "group.id": group,
        "enable.auto.offset.store": False,
        "max.poll.interval.ms": max(300_000, settings.consumer_instance_timeout_ms),
    }
    for name, of_client in (("auto.offset.reset", "auto.offset.reset"), ("auto.commit.enable", "enable.auto.commit")):
        if given.get(name) is not None:
            consumer[of_client] = given[name]
    return InstanceSettings(
        _format(given.get("format")),
        settings.fetch_min_bytes if min_bytes is None else min_bytes,
        settings.seconds("consumer_request_timeout_ms") if timeout_ms is None else timeout_ms / 1000,
        consumer,
    )


def _format(given: Any) -> Format:
    if given is None:
        return Format.BINARY
    try:
        return Format(str(given).lower())
    except ValueError:
        raise unprocessable("Invalid format type.") from None


def _either(given: dict[str, Any], name: str, alias: str) -> int | None:
    found = given.get(name, given.get(alias))
    return None if found is None else bodies.as_int(found, name)


def _new_name(settings: RestSettings) -> str:
    proxy = f"{settings.id}-" if settings.id else ""
    return f"rest-consumer-{proxy}{uuid.uuid4()}"


def _base_url(call: Call) -> str:
    advertised = call.proxy.settings.advertised_listeners
    scheme = call.request.url.scheme
    matching = [url for url in advertised if url.startswith(f"{scheme}://")] or advertised
    return str(matching[0] if matching else call.request.base_url).rstrip("/")


# -- subscriptions and assignments -------------------------------------------------------------------------------


async def subscribe(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../subscription: topics by name, or by a pattern of the whole name in RE2's syntax."""
    given = bodies.fields(await call.json(), {"topics", "topic_pattern"})
    topics, pattern = given.get("topics"), given.get("topic_pattern")
    if topics is not None and not (isinstance(topics, list) and all(isinstance(topic, str) for topic in topics)):
        raise unprocessable("topics must be an array of strings")
    if pattern is not None and not isinstance(pattern, str):
        raise unprocessable("topic_pattern must be a string")
    if bool(topics) == bool(pattern):
        raise _illegal("A subscription has either topics or topic_pattern.")
    async with instance.lock:
        with illegal_states():
            if topics:
                instance.consumer.subscribe(topics, on_revoked=instance.forget)
            else:
                instance.consumer.subscribe(pattern=_Pattern(str(pattern)), on_revoked=instance.forget)
    return Response(status_code=204)


async def subscription(call: Call, instance: ConsumerInstance) -> Response:
    """GET .../subscription."""
    return _json(call, {"topics": instance.consumer.subscription()})


async def unsubscribe(_: Call, instance: ConsumerInstance) -> Response:
    """DELETE .../subscription: stop reading, and leave the group."""
    async with instance.lock:
        instance.settle()
        await instance.consumer.unsubscribe()
        instance.polled.clear()
    return Response(status_code=204)


async def assign(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../assignments: read these partitions, whatever the members of the group read."""
    partitions = bodies.partitions(await call.json())
    async with instance.lock:
        with illegal_states():
            instance.settle()
            instance.consumer.assign(partitions)
        wanted = set(partitions)
        instance.forget([record.topic_partition for record in instance.polled if record.topic_partition not in wanted])
    return Response(status_code=204)


async def assignments(call: Call, instance: ConsumerInstance) -> Response:
    """GET .../assignments."""
    rows = [{"topic": tp.topic, "partition": tp.partition} for tp in instance.consumer.assignment()]
    return _json(call, {"partitions": rows})


# -- positions ---------------------------------------------------------------------------------------------------


async def seek(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../positions: read on at offsets, or at the first records from timestamps on."""
    given = bodies.fields(await call.json(), {"offsets", "timestamps"})
    offsets = [_position(row) for row in given.get("offsets") or []]
    timestamps = dict(_timestamp(row) for row in given.get("timestamps") or [])
    async with instance.lock:
        with illegal_states():
            for tp, row in offsets:
                instance.consumer.seek(tp, row.offset)
                instance.forget([tp])
            for tp, timestamp_ms in timestamps.items():
                instance.consumer.seek_to_timestamp(timestamp_ms, [tp])
                instance.forget([tp])
    return Response(status_code=204)


async def seek_to_beginning(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../positions/beginning."""
    return await _seek_to(call, instance, instance.consumer.seek_to_beginning)


async def seek_to_end(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../positions/end."""
    return await _seek_to(call, instance, instance.consumer.seek_to_end)


async def _seek_to(call: Call, instance: ConsumerInstance, move: Callable[[list[TopicPartition]], None]) -> Response:
    partitions = bodies.partitions(await call.json())
    async with instance.lock:
        with illegal_states():
            move(partitions)
        instance.forget(partitions)
    return Response(status_code=204)


# -- committed offsets -------------------------------------------------------------------------------------------


async def commit(call: Call, instance: ConsumerInstance) -> Response:
    """POST .../offsets: commit these records, or the records of all answers so far.

    As Confluent's proxy, the offset of a record is given, and the offset after it is committed.
    """
    given = await call.json()
    offsets = None
    if given is not None:
        rows = [_position(row) for row in bodies.rows(bodies.fields(given, {"offsets"}), "offsets")]
        offsets = {tp: OffsetAndMetadata(row.offset + 1, metadata=row.metadata) for tp, row in rows}
    async with instance.lock:
        instance.settle()
        await instance.consumer.commit(offsets)
    return _json(call, [])


async def committed(call: Call, instance: ConsumerInstance) -> Response:
    """GET .../offsets, with the partitions in the body."""
    given = await call.json()
    if given is None:
        raise partition_not_found()
    found = await instance.consumer.committed(bodies.partitions(given))
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "offset": row.offset, "metadata": row.metadata}
        for tp, row in found.items()
        if row is not None
    ]
    return _json(call, {"offsets": rows})


# -- records -----------------------------------------------------------------------------------------------------


async def records(call: Call, instance: ConsumerInstance) -> Response:
    """GET .../records: the next records in the format of the instance."""
    format_ = format_of_answer(call.request)
    if format_ is not instance.settings.format:
        text = "The requested embedded data format does not match the deserializer for this consumer instance"
        raise HttpError(406, FORMAT_MISMATCH, text)
    settings = call.proxy.settings
    timeout_ms, max_bytes = _query(call, "timeout"), _query(call, "max_bytes")
    timeout_s = instance.settings.request_timeout_s
    if timeout_ms > 0:
        timeout_s = min(timeout_s, timeout_ms / 1000)
    most: int = settings.consumer_request_max_bytes
    answer = reading.Answer(min(max_bytes, most) if max_bytes > 0 else most)
    await call.body()  # so that a disconnect is the next event
    parts = reading.PARTS.get(format_)
    if parts is None:
        parts = reading.with_schemas(schemas_of(call), format_)
    await reading.read(instance, answer, timeout_s, parts, call)
    await reading.answered(instance, answer, call.request.is_disconnected)
    return Response(answer.body(), media_type=format_.media_type)


def _query(call: Call, name: str) -> int:
    given = call.request.query_params.get(name)
    return -1 if given is None else bodies.as_int(given, name)


# -- helpers -----------------------------------------------------------------------------------------------------


def _json(call: Call, content: object) -> Response:
    return json_response(content, media_type=answer_type(call.request))


def _position(row: Any) -> tuple[TopicPartition, OffsetAndMetadata]:
    tp = bodies.partition(row, _POSITION)
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, str):
        raise HttpError(400, 400, "metadata must be a string.")
    return tp, OffsetAndMetadata(bodies.number(row.get("offset"), "offset"), metadata=metadata or "")


def _timestamp(row: Any) -> tuple[TopicPartition, int]:
    """Return a partition and ms since the epoch, from ISO 8601 or seconds."""
    tp = bodies.partition(row, _TIMESTAMP)
    given = row.get("timestamp")
    try:
        if isinstance(given, str):
            moment = dt.datetime.fromisoformat(given)
            return tp, int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp() * 1000)
        if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 <= given < _MOST_SECONDS:
            return tp, int(given * 1000)
    except (ValueError, OverflowError):
        pass
    raise HttpError(400, 400, "timestamp must be a time in ISO 8601, such as 2026-01-31T12:00:00Z.")


@contextlib.contextmanager
def illegal_states() -> Iterator[None]:
    """Answer calls that do not fit the state of the consumer with 409."""
    try:
        yield
    except (ConfigurationError, NotAssigned) as error:
        raise _illegal(f"Illegal state: {error}") from error


def _illegal(message: str) -> HttpError:
    return HttpError(409, ILLEGAL_STATE, message)


class _Pattern:
    """A pattern of topics whose cost is linear in the length of a name."""

    def __init__(self, pattern: str) -> None:
        try:
            self._matches: Matcher = compile_expression(pattern, "topic_pattern")
        except KafkaError as error:
            raise unprocessable(str(error)) from error

    def fullmatch(self, string: str, /) -> object:
        return self._matches(string)
