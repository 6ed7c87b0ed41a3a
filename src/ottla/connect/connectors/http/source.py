"""The HTTP source: polls a JSON API. The offset is what the next request needs, so that it can be repeated.

| mode | next request | offset |
|---|---|---|
| `cursor` | the cursor of the last response | `{"after": CURSOR}` |
| `page` | the same page until it is full, then the next one | `{"page": N, "index": RECORDS}` |
| `since` | the largest value of a field | `{"since": VALUE, "ids": [...]}`: records with this value that were read |
| `none` | the same request | `{"responses": N}` |

All records of a response are one poll, so with exactly-once support they are written in one transaction with the
offset. An API that cannot repeat a response must have an acknowledgement: `ack.url` is posted only after the records
are committed. Until then no other request is sent, and after a restart the committed offset is acknowledged first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla import __version__
from ottla.connect.api import Config, Connector, ExactlyOnce, Kind, SourceOffset, SourceTask, SourceTaskContext
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, non_empty, one_of
from ottla.connect.connectors.http.client import (
    CLIENT_SETTINGS,
    Pause,
    make_client,
    problem,
    retry_after_s,
    send,
    without_credentials,
)
from ottla.connect.errors import BadRequestError, ConnectError, DataError, RetriableError
from ottla.connect.records import Position, SourceRecord

_STRING, _INT, _LOW, _HIGH = SettingType.STRING, SettingType.INT, Importance.LOW, Importance.HIGH
_WAIT_S: Final = 0.5
_DEFAULT_RETRY_S: Final = 5.0

SETTINGS: Final = ConfigDef(
    [
        *CLIENT_SETTINGS,
        Setting("topic", _STRING, "The topic to write to.", importance=_HIGH, validator=non_empty),
        Setting(
            "mode",
            _STRING,
            "How the next request continues: `cursor`, `page`, `since` or `none`.",
            "cursor",
            _HIGH,
            one_of("cursor", "page", "since", "none"),
        ),
        Setting("parameter", _STRING, "Query parameter of cursor, page or since.", "after", _HIGH, non_empty),
        Setting("records.path", _STRING, "Path of the array in the response, `data.items`; empty: all.", "", _HIGH),
        Setting("cursor.path", _STRING, "Path of the next cursor in the response.", "cursor"),
        Setting("since.field", _STRING, "Field of a record for `mode=since`; values must be ordered.", "updated_at"),
        Setting("id.field", _STRING, "Field that identifies a record for `mode=since`.", "id"),
        Setting("page.start", _INT, "The number of the first page.", 1, _LOW, between(0)),
        Setting("page.size", _INT, "Records of a full page for `mode=page`.", 100, _LOW, between(1)),
        Setting("key.field", _STRING, "Field that becomes the record's key; empty: no key.", ""),
        Setting(
            "poll.interval.ms", SettingType.LONG, "Pause after a response without records.", 10_000, _HIGH, between(1)
        ),
        Setting("ack.url", _STRING, 'URL that gets `{"after": CURSOR}` by POST after each commit; empty: none.', ""),
    ]
)


def found_at(path: str, value: Any) -> Any:
    """Return the value at a path of names, None if it does not exist."""
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return value


class HttpSourceTask(SourceTask):
    """Polls one API."""

    def start(self, context: SourceTaskContext, config: Config) -> None:
        """Read the settings and the offset."""
        self._context = context
        values = self._values = SETTINGS.parse(config)
        self._client = make_client(config, values["request.timeout.ms"])
        self._partition: Position = {"url": without_credentials(values["url"])}
        self._offset: dict[str, Any] = dict(context.offset(self._partition) or _beginning(values))
        if values["mode"] == "page" and not {"page", "index"} <= self._offset.keys():
            raise ConnectError(
                f"The offset {self._offset} is of another mode than page: "
                f"`ottla connect offsets {context.connector} --reset` begins again"
            )
        self._retriable = {int(each) for each in values["retriable.statuses"]}
        self._pause = Pause()
        self._is_unacknowledged = False
        if self._offset != _beginning(values):
            self._acknowledge(self._offset)

    def poll(self) -> Sequence[SourceRecord]:
        """Return the records of one response, or none after a pause."""
        if self._pause.left_s:
            time.sleep(min(_WAIT_S, self._pause.left_s))
            return ()
        if self._is_unacknowledged:
            self._context.report({"waits for": "the commit of the last response, to acknowledge it"})
            time.sleep(_WAIT_S)
            return ()
        response = send(self._client, "GET", self._values["url"], params=self._parameters())
        if response.status_code in (429, 503) or (
            response.status_code in self._retriable and retry_after_s(response) is not None
        ):
            seconds = retry_after_s(response)
            self._pause.start(_DEFAULT_RETRY_S if seconds is None else seconds)
            self._context.report({"waits for": problem(response)})
            return ()
        if response.status_code in self._retriable:
            raise RetriableError(problem(response))
        if response.status_code != 200:
            raise ConnectError(problem(response))
        records = self._records(response)
        if not records:
            self._pause.start(self._values["poll.interval.ms"] / 1000)
        self._is_unacknowledged = bool(records and self._values["ack.url"])
        return records

    def _parameters(self) -> dict[str, Any] | None:
        name = {"cursor": "after", "page": "page", "since": "since"}.get(self._values["mode"])
        value = self._offset.get(name) if name else None
        return None if value is None else {self._values["parameter"]: value}

    def _records(self, response: Any) -> list[SourceRecord]:
        try:
            body = response.json()
        except ValueError as error:
            raise DataError(f"{problem(response)} is not JSON: {error}") from error
        items = found_at(self._values["records.path"], body)
        if not isinstance(items, list):
            raise DataError(f"{problem(response)} has no array at {self._values['records.path'] or 'its root'}")
        new, offsets = self._advanced(items, body)
        key = self._values["key.field"]
        return [
            SourceRecord(
                self._values["topic"],
                None,
                None,
                found_at(key, item) if key else None,
                None,
                item,
                source_partition=self._partition,
                source_offset=offset,
            )
            for item, offset in zip(new, offsets, strict=True)
        ]

    def _advanced(self, items: list[Any], body: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        """Return the records that are new, with their offsets, and move to the last one."""
        before = self._offset
        mode = self._values["mode"]
        if mode == "page":
            return self._advanced_page(items)
        if mode == "since":
            return self._advanced_since(items)
        if mode == "cursor":
            cursor = found_at(self._values["cursor.path"], body)
            if cursor is None and items:
                raise DataError(f"The response has records, but no cursor at {self._values['cursor.path']}")
            after = before if cursor is None else {"after": cursor}
        else:
            after = {"responses": int(before.get("responses", 0)) + 1}
        self._offset = after
        # Until the last record of the response is written, the same request must be repeated.
        return items, [before] * (len(items) - 1) + [after] * bool(items)

    def _advanced_page(self, items: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
        page, index = int(self._offset["page"]), int(self._offset["index"])
        new = items[index:]
        offsets = [{"page": page, "index": index + number} for number in range(1, len(new) + 1)]
        is_full = len(items) >= self._values["page.size"]
        if is_full:
            self._offset = {"page": page + 1, "index": 0}
            offsets[-1:] = [self._offset] * bool(offsets)
        elif offsets:
            self._offset = offsets[-1]
        return new, offsets

    def _advanced_since(self, items: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
        """Skip records that were read with the same value; sort, so that each offset is the largest value so far."""
        value_of, id_of = self._values["since.field"], self._values["id.field"]
        if any(found_at(value_of, each) is None or found_at(id_of, each) is None for each in items):
            raise DataError(f"A record of the response has no field {value_of} or {id_of}")
        new, offsets = [], []
        try:
            items = sorted(items, key=lambda each: found_at(value_of, each))
        except TypeError as error:
            raise DataError(f"Values of the field {value_of} cannot be compared: {error}") from error
        for item in items:
            value, identity = found_at(value_of, item), found_at(id_of, item)
            is_same = value == self._offset.get("since")
            if is_same and identity in self._offset["ids"]:
                continue
            self._offset = {"since": value, "ids": [*(self._offset["ids"] if is_same else []), identity]}
            new.append(item)
            offsets.append(self._offset)
        return new, offsets

    def commit(self, offsets: Sequence[SourceOffset]) -> None:
        """Acknowledge at the API what is durable in Kafka, when the whole response is."""
        if offsets and dict(offsets[-1].offset or {}) == self._offset:
            self._acknowledge(self._offset)

    def _acknowledge(self, offset: Position) -> None:
        if not self._values["ack.url"]:
            return
        response = send(self._client, "POST", self._values["ack.url"], json=dict(offset))
        if response.status_code in self._retriable:
            raise RetriableError(problem(response))
        if response.status_code >= 300:
            raise ConnectError(problem(response))
        self._is_unacknowledged = False

    def stop(self) -> None:
        """Close connections."""
        if hasattr(self, "_client"):
            self._client.close()


def _beginning(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"page": {"page": values["page.start"], "index": 0}, "none": {"responses": 0}}.get(values["mode"], {})


class HttpSourceConnector(Connector):
    """The records of a JSON API."""

    kind = Kind.SOURCE
    version = __version__
    config_def = SETTINGS
    task_class = HttpSourceTask

    @classmethod
    def exactly_once(cls, config: Config) -> ExactlyOnce:
        """Requests of all modes but `none` can be repeated; `none` needs an acknowledgement."""
        is_repeatable = config.get("mode", "cursor") != "none"
        return ExactlyOnce.SUPPORTED if is_repeatable else ExactlyOnce.UNSUPPORTED

    @classmethod
    def alter_offsets(cls, config: Config, offsets: Sequence[SourceOffset] | None) -> None:
        """Accept offsets of the URL. Raises BadRequestError."""
        for partition, _ in offsets or ():
            url = without_credentials(config["url"])
            if dict(partition) != {"url": url}:
                raise BadRequestError(f'The source partition is {{"url": "{url}"}}, not {dict(partition)}')
