"""Spans of OpenTelemetry: one trace from `send` to `process`, with the attributes of the messaging conventions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ottla.clients import AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.clients.errors import ClientError
from ottla.clients.tracing import MOST_LINKS, Tracing
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S


class Spans:
    """A tracing whose spans stay in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider, TraceContextTextMapPropagator(), group="g")

    def of(self, operation: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name.split()[0] == operation]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()}


@pytest.mark.both
def test_record_is_one_trace_from_send_to_process(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, spans = make_topic(), Spans()
    tracing = spans.tracing
    called = threading.Event()
    old = ("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        headers = [("own", b"\xff"), old, ("null", None)]
        tracing.send(producer, topic, b"v", b"k\xff", headers=headers, callback=lambda _: called.set()).result(WAIT_S)
        tracing.send(producer, topic, None, b"text").result(WAIT_S)
        assert called.wait(WAIT_S)
    records: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while len(records) < 2:
            records += tracing.poll(consumer)
    with pytest.raises(ZeroDivisionError), tracing.process(records[0]):
        1 / 0  # noqa: B018
    sent, polled, processed = spans.of("send"), spans.of("poll"), spans.of("process")
    first, second = sent
    assert (first.name, first.kind) == (f"send {topic}", SpanKind.PRODUCER)
    assert attributes(first) == {
        "system": "kafka",
        "operation.type": "send",
        "operation.name": "send",
        "destination.name": topic,
        "destination.partition.id": "0",
        "kafka.message.key": "k\\xff",
        "kafka.offset": 0,
    }
    assert attributes(second)["kafka.message.tombstone"] is True
    assert [name for name, _ in records[0].headers] == ["own", "null", "traceparent"]
    assert {link.context.span_id for each in polled for link in each.links} == {
        each.context.span_id for each in sent if each.context
    }
    assert sum(attributes(each)["batch.message_count"] for each in polled) == 2
    assert attributes(polled[0])["consumer.group.name"] == "g"
    assert polled[0].kind is SpanKind.CLIENT
    (process,) = processed
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert first.context is not None
    assert (process.parent.trace_id, process.parent.span_id) == (first.context.trace_id, first.context.span_id)
    assert process.status.status_code is StatusCode.ERROR
    assert process.attributes is not None
    assert process.attributes["error.type"] == "ZeroDivisionError"
    assert attributes(process)["kafka.offset"] == 0


def test_record_that_fails_ends_its_span_with_the_error(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, spans = make_topic(), Spans()
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=1_000) as producer, pytest.raises(ClientError):
        spans.tracing.send(producer, topic, b"x" * 5_000).result(WAIT_S)
    (failed,) = spans.of("send")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "MessageTooLarge"


def test_asyncio_clients_have_the_same_spans(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, spans = make_topic(), Spans()
    count = MOST_LINKS + 10

    async def scenario() -> int:
        read = 0
        async with AsyncProducer(bootstrap_servers=broker.bootstrap) as producer:
            sent = [await spans.tracing.send_async(producer, topic, b"%d" % number) for number in range(count)]
            for each in sent:
                await each
        async with AsyncConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            while read < count:
                read += len(await spans.tracing.poll_async(consumer))
        return read

    assert asyncio.run(asyncio.wait_for(scenario(), WAIT_S)) == count
    assert len(spans.of("send")) == count
    assert all(len(each.links) <= MOST_LINKS for each in spans.of("poll"))


def test_clients_do_not_import_opentelemetry() -> None:
    code = "import sys; from ottla.clients import Producer, Consumer; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
