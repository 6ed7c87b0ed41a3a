"""The HTTP sink: records as JSON requests, with a key by which the server can recognize a repeated request.

Delivery is at least once; a server that honours the key makes it exactly once. The key names exactly the records of
the request (`TOPIC-PARTITION-OFFSET`, for a batch `TOPIC-PARTITION-FIRST-LAST`): after a restart a batch may end
elsewhere, and with the same key the server would drop its new records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla import __version__
from ottla.connect.api import Config, Connector, Kind, SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, one_of
from ottla.connect.connectors.http.client import (
    CLIENT_SETTINGS,
    make_client,
    problem,
    refuses_record,
    retry_after_s,
    send,
)
from ottla.connect.converters import json_encoder
from ottla.connect.converters.json_encoder import Encode, JsonOptions, dumps
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import SinkRecord

SETTINGS: Final = ConfigDef(
    [
        *CLIENT_SETTINGS,
        Setting("method", SettingType.STRING, "POST, PUT or PATCH.", "POST", validator=one_of("POST", "PUT", "PATCH")),
        Setting(
            "batch.size",
            SettingType.INT,
            "Most records of a request. 1: the value itself; more: an array of values of one partition.",
            1,
            Importance.HIGH,
            between(1),
        ),
        Setting(
            "idempotency.header", SettingType.STRING, "Header with the request's key; empty: none.", "Idempotency-Key"
        ),
    ]
)
_SCHEMAS: Final = 100


class HttpSinkTask(SinkTask):
    """Sends requests, one after another. A record is accepted with a status from 200 to 299."""

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the settings."""
        self._context = context
        values = self._values = SETTINGS.parse(config)
        self._client = make_client(config, values["request.timeout.ms"])
        self._retriable = {int(each) for each in values["retriable.statuses"]}
        self._encoders: dict[Schema | None, Encode] = {}
        self._next: dict[TopicPartition, int] = {}
        self._requests = 0

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Send all records. After a RetriableError the next put skips what was accepted already."""
        batch: list[SinkRecord] = []
        for record in records:
            if record.original_offset < self._next.get(_place(record), -1):
                continue
            if batch and (len(batch) >= self._values["batch.size"] or _place(record) != _place(batch[0])):
                self._send(batch)
                batch = []
            batch.append(record)
        if batch:
            self._send(batch)

    def _send(self, batch: Sequence[SinkRecord]) -> None:
        try:
            body = self._body(batch)
        except DataError as error:
            self._divide(batch, error)
            return
        headers = {"Content-Type": "application/json"}
        if self._values["idempotency.header"]:
            headers[self._values["idempotency.header"]] = _key(batch)
        response = send(self._client, self._values["method"], self._values["url"], content=body, headers=headers)
        if response.status_code in self._retriable:
            after = retry_after_s(response)
            hint = "" if after is None else f" (the server asks for {after:g} s)"
            raise RetriableError(f"{problem(response)}{hint}")
        if 200 <= response.status_code < 300:
            self._accepted(batch)
        elif refuses_record(response.status_code):
            self._divide(batch, DataError(problem(response)))
        else:
            raise ConnectError(problem(response))

    def _divide(self, batch: Sequence[SinkRecord], error: DataError) -> None:
        """Send the records of a refused batch alone, and reject a record that is refused alone."""
        if len(batch) > 1:
            for each in batch:
                self._send([each])
            return
        record = batch[0]
        tp = _place(record)
        place = f"{tp.topic}-{tp.partition} offset {record.original_offset}"
        self._context.reject(record, DataError(f"The record {place} was refused: {error}"))
        self._next[tp] = record.original_offset + 1

    def _accepted(self, batch: Sequence[SinkRecord]) -> None:
        self._next[_place(batch[0])] = batch[-1].original_offset + 1
        self._requests += 1
        self._context.report({"requests": self._requests})

    def _body(self, batch: Sequence[SinkRecord]) -> bytes:
        values = [self._encoder(each.value_schema)(each.value) for each in batch]
        return dumps(values if self._values["batch.size"] > 1 else values[0])

    def _encoder(self, schema: Schema | None) -> Encode:
        if schema not in self._encoders:
            if len(self._encoders) >= _SCHEMAS:
                self._encoders.clear()
            self._encoders[schema] = json_encoder.compiled(schema, JsonOptions(numeric_decimals=True))
        return self._encoders[schema]

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin at the committed offsets."""
        for tp in partitions:
            self._next.pop(tp, None)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return all offsets: `put` returns only after the server has accepted its records."""
        return offsets

    def stop(self) -> None:
        """Close connections."""
        if hasattr(self, "_client"):
            self._client.close()


def _place(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic, record.original_partition)


def _key(batch: Sequence[SinkRecord]) -> str:
    first, last = batch[0], batch[-1]
    key = f"{first.original_topic}-{first.original_partition}-{first.original_offset}"
    return key if len(batch) == 1 else f"{key}-{last.original_offset}"


class HttpSinkConnector(Connector):
    """Records as requests."""

    kind = Kind.SINK
    version = __version__
    config_def = SETTINGS
    task_class = HttpSinkTask

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check the URL and the statuses."""
        faults: dict[str, Any] = {}
        if not config.get("url", "").startswith(("http://", "https://")):
            faults["url"] = ["url must begin with http:// or https://"]
        if not all(each.isdigit() for each in SETTINGS.parse(config)["retriable.statuses"]):
            faults["retriable.statuses"] = ["retriable.statuses must be numbers"]
        return faults
