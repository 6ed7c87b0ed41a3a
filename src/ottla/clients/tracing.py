"""Spans of OpenTelemetry around producers and consumers, with the context of the producer in the record's headers.

    tracing = Tracing()
    tracing.send(producer, "orders", b"value", key=b"42")
    for record in tracing.poll(consumer):
        with tracing.process(record):
            handle(record)

Names, kinds and attributes follow the semantic conventions of messaging for Kafka:

- `send TOPIC` (kind PRODUCER) lasts until the record is acknowledged or has failed. Its context is in the headers of
  the record, by default as `traceparent` (W3C).
- `poll TOPIC` (kind CLIENT) has links to the contexts of the records. A poll without records has no span.
- `process TOPIC` (kind CONSUMER) is a child of the span that sent the record.

The module needs the extra `otel`: the API only. The program configures the SDK. Programs that do not import this module
pay nothing, since producers and consumers do not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from ottla import __version__
from ottla.clients.errors import ClientError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError("Tracing needs opentelemetry-api: pip install 'ottla[otel]'", name="opentelemetry") from error

if TYPE_CHECKING:
    from datetime import datetime

    from ottla.clients.consumer import AsyncConsumer, Consumer, Record
    from ottla.clients.producer import AsyncProducer, Producer
    from ottla.clients.producer.delivery import AsyncDelivery
    from ottla.clients.producer.producer import Delivery

# The limit of links of a span in the SDK.
MOST_LINKS: Final = 128
_UNKNOWN: Final = -1

Header = tuple[str, bytes | None]
Headers = Mapping[str, bytes | None] | Iterable[Header]


class SendOptions(TypedDict, total=False):
    """Further options of `send`, as in `Producer.send`."""

    partition: int | None
    timestamp_ms: int | datetime | None
    callback: Callable[[Any], object] | None


class _Setter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _Getter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        # The last header of a name counts, as for Kafka's clients.
        found = [value for name, value in carrier if name == key and value is not None]
        return [found[-1].decode(errors="replace")] if found else None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


_SETTER: Final = _Setter()
_GETTER: Final = _Getter()


class Tracing:
    """Sends, polls and processes records in spans. Threads may share it.

    `provider` creates the spans, `propagator` writes and reads the headers; the default are the global ones of
    OpenTelemetry. `group` is the group of the consumers, for their spans.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        group: str | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("ottla.clients", __version__, provider)
        self._propagator = propagator or propagate.get_global_textmap()
        self._of_consumers = {} if group is None else {"messaging.consumer.group.name": group}

    # -- producers ---------------------------------------------------------------------------------------------

    def send(
        self,
        producer: Producer[Any, Any],
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Send a record as `Producer.send` does, in a span. Raises as it does."""
        span, traced = self._start(topic, value, key, headers)
        options["callback"] = _finishing(span, options.get("callback"))
        try:
            return producer.send(topic, value, key, headers=traced, **options)
        except BaseException as error:
            _end(span, error)
            raise

    async def send_async(
        self,
        producer: AsyncProducer[Any, Any],
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = (),
        **options: Unpack[SendOptions],
    ) -> AsyncDelivery:
        """Send a record as `AsyncProducer.send` does, in a span. Raises as it does."""
        span, traced = self._start(topic, value, key, headers)
        options["callback"] = _finishing(span, options.get("callback"))
        try:
            return await producer.send(topic, value, key, headers=traced, **options)
        except BaseException as error:
            _end(span, error)
            raise

    def _start(self, topic: str, value: Any, key: Any, headers: Headers) -> tuple[Span, list[Header]]:
        """Return the span of a record, and its headers with the span's context in place of an earlier one."""
        attributes: dict[str, Any] = _attributes("send", "send", topic)
        if isinstance(key, (str, bytes)):
            attributes["messaging.kafka.message.key"] = _text(key)
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        own = self._propagator.fields
        rows = headers.items() if isinstance(headers, Mapping) else headers
        traced = [(name, row) for name, row in rows if name not in own]
        self._propagator.inject(traced, trace.set_span_in_context(span), _SETTER)
        return span, traced

    # -- consumers ---------------------------------------------------------------------------------------------

    def poll(self, consumer: Consumer[Any, Any], timeout_s: float = 1.0) -> list[Record[Any, Any]]:
        """Poll as `Consumer.poll` does; records are returned in a span."""
        began_ns = time_ns()
        records = consumer.poll(timeout_s)
        self._polled(records, began_ns)
        return records

    async def poll_async(self, consumer: AsyncConsumer[Any, Any], timeout_s: float = 1.0) -> list[Record[Any, Any]]:
        """Poll as `AsyncConsumer.poll` does; records are returned in a span."""
        began_ns = time_ns()
        records = await consumer.poll(timeout_s)
        self._polled(records, began_ns)
        return records

    def _polled(self, records: Sequence[Record[Any, Any]], began_ns: int) -> None:
        if not records:
            return
        topics = {record.topic for record in records}
        topic = topics.pop() if len(topics) == 1 else None
        attributes = _attributes("receive", "poll", topic) | self._of_consumers
        attributes["messaging.batch.message_count"] = len(records)
        links = []
        for record in records:
            # Without a context in the headers, the result is the given one, which is empty.
            context = self._propagator.extract(record.headers, Context(), _GETTER)
            sent = trace.get_current_span(context).get_span_context()
            if sent.is_valid:
                links.append(Link(sent))
                if len(links) == MOST_LINKS:
                    break
        name = "poll" if topic is None else f"poll {topic}"
        span = self._tracer.start_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=began_ns
        )
        span.end()

    @contextmanager
    def process(self, record: Record[Any, Any]) -> Iterator[Span]:
        """Process a record in a span, which is the current one. An exception is recorded and raised again."""
        attributes = _attributes("process", "process", record.topic) | self._of_consumers
        attributes["messaging.destination.partition.id"] = str(record.partition)
        attributes["messaging.kafka.offset"] = record.offset
        if isinstance(record.key, (str, bytes)):
            attributes["messaging.kafka.message.key"] = _text(record.key)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        parent = self._propagator.extract(record.headers, getter=_GETTER)
        with self._tracer.start_as_current_span(
            f"process {record.topic}", parent, SpanKind.CONSUMER, attributes=attributes
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _attributes(kind: str, operation: str, topic: str | None) -> dict[str, Any]:
    found = {"messaging.system": "kafka", "messaging.operation.type": kind, "messaging.operation.name": operation}
    if topic is not None:
        found["messaging.destination.name"] = topic
    return found


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")


def _finishing(span: Span, callback: Callable[[Any], object] | None) -> Callable[[Any], object]:
    """Return a callback that ends the span of a delivery, and then calls the program's."""

    def finish(delivery: Any) -> None:
        try:
            position = delivery.peek()
        except ClientError as error:
            _end(span, error)
        else:
            span.set_attribute("messaging.destination.partition.id", str(position.partition))
            if position.offset != _UNKNOWN:
                span.set_attribute("messaging.kafka.offset", position.offset)
            span.end()
        if callback is not None:
            callback(delivery)

    return finish


def _end(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
