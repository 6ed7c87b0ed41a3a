"""Reads records from files, and passes them to a producer, with defaults for their fields."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla import clients
from ottla.clients.errors import BrokerUnavailable, BufferExhausted, ClientError, Closed
from ottla.tools.deliveries import Deliveries, reason
from ottla.tools.formats.json_lines import read_lines
from ottla.tools.formats.record_reader import BadRecord, NewRecord, Template, read_records
from ottla.tools.inputs import Inputs
from ottla.tools.progress import Progress

ANY_TOPIC: Final = "-"
"""In place of a topic: each record names its own."""
ANY_PARTITION: Final = -1
"""In place of a partition: the producer chooses it by the key."""
Numbered = tuple[str, int, NewRecord | BadRecord]
"""The name of a source, the number of a record in it, and the record."""
_LINE_BREAK: Final = 10
_LINES: Final = 256
"""Lines between two updates of the progress."""


def formatted(inputs: Inputs, template: Template) -> Iterator[Numbered]:
    """Yield the records of files in a format."""
    noun = "line" if template.lines else "record"
    for path in inputs.paths:
        with inputs.open(path) as stream:
            for number, record in read_records(template, stream):
                yield _source(path, noun), number, record


def json_lines(inputs: Inputs, *, inline: bool) -> Iterator[Numbered]:
    """Yield the records of files with JSON lines; `inline` values are their JSON text."""
    for path in inputs.paths:
        with inputs.open(path) as stream:
            for number, record in read_lines(stream, inline=inline):
                yield _source(path, "line"), number, record


def whole_files(inputs: Inputs) -> Iterator[Numbered]:
    """Yield a record for each file, which is its value."""
    for number, path in enumerate(inputs.paths, 1):
        with inputs.open(path) as stream:
            yield f"{path}: file ", number, NewRecord(value=stream.read())


def _source(path: str, noun: str) -> str:
    """Return what precedes the number of a record in messages."""
    return f"{noun} " if path == "-" else f"{path}: {noun} "


class Defaults(NamedTuple):
    """Key, headers, timestamp and partition that the options give to every record."""

    key: bytes | None
    timestamp_ms: int | None
    partition: int | None
    """None: each record may have its own."""
    headers: list[tuple[str, bytes | None]]


class Sending:
    """Passes records to the producer, one after another."""

    def __init__(
        self,
        producer: clients.Producer,
        topic: str,
        topics: set[str] | None,
        defaults: Defaults,
        deliveries: Deliveries,
    ) -> None:
        """`topics` are the existing topics; None if the broker creates them."""
        self._producer = producer
        self._topic = topic
        self._topics = topics
        self._defaults = defaults
        self._deliveries = deliveries

    def all(self, records: Iterator[Numbered], rate: float | None, bar: Progress) -> None:
        """Send records; the deliveries receive failures. Raises ClientError for errors that concern all records."""
        started_s = time.monotonic()
        deliveries = self._deliveries
        count = 0
        for source, number, record in records:
            if isinstance(record, BadRecord):
                deliveries.refused(source, number, str(record))
                continue
            self._send(source, number, record)
            count += 1
            bar.advance(1, len(record.key or b"") + len(record.value or b""))
            if rate is not None:
                ahead_s = count / rate - (time.monotonic() - started_s)
                if ahead_s > 0.005:
                    deliveries.look()
                    time.sleep(ahead_s)

    def lines(self, inputs: Inputs, bar: Progress) -> None:
        """Send each line as a value: a faster `all` for the most common case."""
        send, add, topic, key = self._producer.send, self._deliveries.add, self._topic, self._defaults.key
        default = self._defaults.partition
        partition = None if default == ANY_PARTITION else default
        # A pipe may deliver lines rarely; a file delivers thousands at once.
        every = 1 if bar.shown and inputs.total() is None else _LINES
        count = size = 0
        for path in inputs.paths:
            source = _source(path, "line")
            with inputs.open(path) as stream:
                for number, line in enumerate(stream, 1):
                    value = line[:-1] if line[-1] == _LINE_BREAK else line
                    try:
                        add(source, number, send(topic, value, key, partition=partition))
                    except ClientError:
                        self._send(source, number, NewRecord(value=value))  # handles the error
                    count += 1
                    size += len(line)
                    if count >= every:
                        bar.advance(count, size)
                        count = size = 0

    def _send(self, source: str, number: int, record: NewRecord) -> None:
        key, value, headers, partition, timestamp, topic = record
        defaults = self._defaults
        if key is None:
            key = defaults.key
        if timestamp is None:
            timestamp = defaults.timestamp_ms
        if defaults.partition is not None:
            partition = None if defaults.partition == ANY_PARTITION else defaults.partition
        if self._topic != ANY_TOPIC:
            topic = self._topic
        elif topic is None or (self._topics is not None and topic not in self._topics):
            why = "the record names no topic" if topic is None else f"there is no topic {topic!r}"
            self._deliveries.refused(source, number, why)
            return
        if defaults.headers:
            headers = [*headers, *defaults.headers]
        try:
            if headers or timestamp is not None:
                delivery = self._producer.send(
                    topic, value, key, partition=partition, timestamp_ms=timestamp, headers=headers
                )
            else:
                delivery = self._producer.send(topic, value, key, partition=partition)
        except (BrokerUnavailable, BufferExhausted, Closed):
            raise
        except ClientError as error:
            self._deliveries.refused(source, number, reason(error))
            return
        self._deliveries.add(source, number, delivery)
