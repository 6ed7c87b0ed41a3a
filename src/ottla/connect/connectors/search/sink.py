"""The search sink: documents by the bulk API of Elasticsearch and OpenSearch.

A document's external version is the record's offset. A repeated or late record has a version that the index has
already, so the server refuses it with 409, and nothing changes: at least once becomes effectively once. With
`key.ignore=false` the `_id` is the key, whose records are in one partition; an index must have one topic then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla import __version__
from ottla.connect.api import Config, Connector, Kind, SinkTask, SinkTaskContext
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, non_empty, one_of
from ottla.connect.connectors.http.client import RETRIABLE, make_client, place, problem, refuses_record, send
from ottla.connect.converters import json_encoder
from ottla.connect.converters.java_text import object_text
from ottla.connect.converters.json_encoder import Encode, JsonOptions, dumps
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import SinkRecord

_STRING, _INT, _LOW = SettingType.STRING, SettingType.INT, Importance.LOW
_RETRIABLE: Final = {int(each) for each in RETRIABLE}
_CONFLICT, _NOT_FOUND, _TOO_LARGE = 409, 404, 413
_FIELD: Final = re.compile(r"(?:field|object mapping for|introduction of) \[([^\]]+)\]")
_MOST_ID_BYTES: Final = 512
_SCHEMAS: Final = 100

SETTINGS: Final = ConfigDef(
    [
        Setting("connection.url", _STRING, "URL of the server.", importance=Importance.HIGH, validator=non_empty),
        Setting("connection.username", _STRING, "User for basic authentication; empty: none.", ""),
        Setting("connection.password", SettingType.PASSWORD, "Its password.", None),
        Setting("index", _STRING, "The index; `${topic}` is replaced by the topic.", "${topic}", validator=non_empty),
        Setting("key.ignore", SettingType.BOOLEAN, "`false`: `_id` is the key; `true`: TOPIC+PARTITION+OFFSET.", False),
        Setting(
            "behavior.on.null.values",
            _STRING,
            "A record without a value: `delete` the document, `ignore` or `fail`.",
            "delete",
            validator=one_of("delete", "ignore", "fail"),
        ),
        Setting("batch.size", _INT, "Most records of a request.", 2000, _LOW, between(1)),
        Setting("batch.bytes", _INT, "Most bytes of a request.", 5 << 20, _LOW, between(1)),
        Setting("request.timeout.ms", _INT, "Deadline of a request.", 60_000, _LOW, between(1)),
    ]
)


class _Action(NamedTuple):
    record: SinkRecord
    lines: bytes


class SearchSinkTask(SinkTask):
    """Sends bulk requests."""

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the settings."""
        self._context = context
        values = self._values = SETTINGS.parse(config)
        password = values["connection.password"]
        user = values["connection.username"]
        auth = (user, password.secret if password else "") if user else None
        self._client = make_client(config, values["request.timeout.ms"], auth=auth)
        self._url = values["connection.url"].rstrip("/") + "/_bulk"
        self._encoders: dict[Schema | None, Encode] = {}
        self._refused: set[tuple[str, int, int]] = set()
        """Records of the current put that were rejected: they are not rejected once more when it is repeated."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Write all records. After a RetriableError all of them are sent again; versions make that harmless."""
        batch: list[_Action] = []
        size = 0
        for record in records:
            if _place(record) in self._refused:
                continue
            lines = self._lines(record)
            if lines is None:
                continue
            if batch and (len(batch) >= self._values["batch.size"] or size + len(lines) > self._values["batch.bytes"]):
                self._send(batch)
                batch, size = [], 0
            batch.append(_Action(record, lines))
            size += len(lines)
        if batch:
            self._send(batch)
        self._refused.clear()

    def _lines(self, record: SinkRecord) -> bytes | None:
        """Return the lines of a record; None if it is skipped or rejected."""
        behavior = self._values["behavior.on.null.values"]
        if record.value is None and behavior == "ignore":
            return None
        try:
            action = {
                "_index": self._values["index"].replace("${topic}", record.topic).lower(),
                "_id": self._id(record),
                "version": record.original_offset,
                "version_type": "external",
            }
            if record.value is None:
                if behavior == "fail":
                    raise DataError("it has no value")
                return dumps({"delete": action}) + b"\n"
            document = self._encoder(record.value_schema)(record.value)
            if not isinstance(document, dict):
                raise DataError("its value is not a JSON object")
            return dumps({"index": action}) + b"\n" + dumps(document) + b"\n"
        except DataError as error:
            self._reject(record, str(error))
            return None

    def _id(self, record: SinkRecord) -> str:
        if self._values["key.ignore"]:
            return f"{record.original_topic}+{record.original_partition}+{record.original_offset}"
        if record.key is None:
            raise DataError("it has no key; set key.ignore=true to identify documents by offset")
        key = record.key.decode(errors="replace") if isinstance(record.key, bytes) else object_text(record.key)
        if len(key.encode()) > _MOST_ID_BYTES:
            raise DataError(f"its key has more than {_MOST_ID_BYTES} bytes")
        return key

    def _encoder(self, schema: Schema | None) -> Encode:
        if schema not in self._encoders:
            if len(self._encoders) >= _SCHEMAS:
                self._encoders.clear()
            self._encoders[schema] = json_encoder.compiled(schema, JsonOptions(numeric_decimals=True))
        return self._encoders[schema]

    def _reject(self, record: SinkRecord, reason: str) -> None:
        topic, partition, offset = _place(record)
        self._context.reject(record, DataError(f"The record {topic}-{partition} offset {offset} was refused: {reason}"))
        self._refused.add((topic, partition, offset))

    def _send(self, batch: Sequence[_Action]) -> None:
        body = b"".join(each.lines for each in batch)
        response = send(self._client, "POST", self._url, content=body, headers={"Content-Type": "application/x-ndjson"})
        if response.status_code == _TOO_LARGE and len(batch) > 1:
            half = len(batch) // 2
            self._send(batch[:half])
            self._send(batch[half:])
            return
        if response.status_code == _TOO_LARGE:
            self._reject(batch[0].record, problem(response))
            return
        if response.status_code in _RETRIABLE:
            raise RetriableError(problem(response))
        if response.status_code != 200:
            raise ConnectError(problem(response))
        self._check(batch, response)

    def _check(self, batch: Sequence[_Action], response: Any) -> None:
        """Reject refused documents; raise if some must be sent again."""
        try:
            items = [result for each in response.json()["items"] for result in each.items()]
            statuses = [int(result["status"]) for _, result in items]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RetriableError(f"{problem(response)} is not the answer to a bulk request") from error
        if len(items) != len(batch):
            raise RetriableError(f"The server has answered {len(items)} of {len(batch)} documents")
        busy = ""
        for action, (kind, result), status in zip(batch, items, statuses, strict=True):
            if 200 <= status < 300 or status == _CONFLICT or (status == _NOT_FOUND and kind == "delete"):
                continue
            reason = _reason(result.get("error"))
            if status in _RETRIABLE:
                busy = f"status {status}: {reason}"
            elif not refuses_record(status):
                raise ConnectError(f"{place(self._url)} refuses to write: status {status}: {reason}")
            else:
                found = _FIELD.search(reason)
                self._reject(action.record, f"{f'field {found[1]}: ' if found else ''}{reason}")
        if busy:
            raise RetriableError(f"{place(self._url)} has not written all documents: {busy}")

    def stop(self) -> None:
        """Close connections."""
        if hasattr(self, "_client"):
            self._client.close()


def _reason(error: Any) -> str:
    """Return the reasons of an error, from the outer one to its causes."""
    reasons: list[str] = []
    while isinstance(error, dict) and len(reasons) < 5:
        reasons.append(f"{error.get('type', 'error')}: {error.get('reason', '')}")
        error = error.get("caused_by")
    return "; ".join(reasons) or str(error)


def _place(record: SinkRecord) -> tuple[str, int, int]:
    return record.original_topic, record.original_partition, record.original_offset


class SearchSinkConnector(Connector):
    """Records as documents of Elasticsearch or OpenSearch."""

    kind = Kind.SINK
    version = __version__
    config_def = SETTINGS
    task_class = SearchSinkTask

    @classmethod
    def problems(cls, config: Config) -> Mapping[str, Sequence[str]]:
        """Check the URL."""
        if not config.get("connection.url", "").startswith(("http://", "https://")):
            return {"connection.url": ["connection.url must begin with http:// or https://"]}
        return {}
