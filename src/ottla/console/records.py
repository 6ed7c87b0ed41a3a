"""Reads records of a topic for people: a bounded search, and each record as plain data with masks applied."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients import Consumer, Record, TopicPartition
from ottla.clients import admin as api
from ottla.clients.errors import DeserializationFailed
from ottla.console.masking import MASKED, Mask
from ottla.registry_client import RegistryClient
from ottla.tools.formats.escaping import escaped_text
from ottla.tools.registry_values import JsonText

PREVIEW: Final = 600
"""Characters of a key or value in a list."""
MOST_SCANNED: Final = 200_000
SCAN_S: Final = 8.0
_POLL_S: Final = 0.5
_POLL_RECORDS: Final = 2_000
_LARGE: Final = 16 * 1024
"""Records of this size are shortened at once: a search may hold thousands."""
_LONGEST_PARSED: Final = 100_000
"""Longer texts that begin as JSON are called so without being parsed, which takes milliseconds for each."""
_MAGIC: Final = 0
_FRAME: Final = 5


class Search(NamedTuple):
    """A search for records. Without a start, the newest records; `starts` and `timestamp_ms` read forward."""

    topic: str
    partitions: tuple[int, ...]
    limit: int = 50
    starts: Mapping[int, int] | None = None
    timestamp_ms: int | None = None
    key: str = ""
    text: str = ""

    @property
    def filters(self) -> bool:
        """Whether records are compared with a text."""
        return bool(self.key or self.text)


class Found(NamedTuple):
    """The records of a search, how many were read, and where to continue: offsets by partition."""

    records: list[dict[str, Any]]
    scanned: int
    took_s: float
    remaining: int
    next: dict[int, int]
    notice: str


class Decoder:
    """Records as plain data: JSON, Avro, Protobuf (by a registry), text or bytes. Masked fields are replaced."""

    def __init__(self, mask: Mask, registry: RegistryClient | None) -> None:
        self._mask = mask
        self._json = {} if registry is None else {part: JsonText(registry, part) for part in ("key", "value")}
        self.notice = ""

    def part(self, record: Record[bytes, bytes], part: str) -> tuple[str | None, str]:
        """Return the whole text of a key or value, and its kind: null, json, schema, text, bytes or masked."""
        data = record.key if part == "key" else record.value
        if data is None:
            return None, "null"
        text, kind = self._text(record, part, data)
        shown = self._mask.text(part, text)
        assert shown is not None
        return shown, "masked" if shown == MASKED else kind

    def _text(self, record: Record[bytes, bytes], part: str, data: bytes) -> tuple[str, str]:
        if part in self._json and len(data) > _FRAME and data[0] == _MAGIC:
            reader = self._json[part]
            failed = reader.failed
            try:
                decoded = reader(data, record.topic, record.headers)
            except DeserializationFailed as error:
                self.notice = f"The schema registry did not answer: {' '.join(str(error).split())}"
            else:
                if reader.failed == failed:
                    return decoded.decode(), "schema"
        return text_of(data)

    def headers(self, record: Record[bytes, bytes]) -> list[dict[str, str | None]]:
        """Return the headers as text."""
        return [
            {
                "name": name,
                "value": MASKED if self._mask.hides_header(name) else None if value is None else text_of(value)[0],
            }
            for name, value in record.headers
        ]

    def row(self, record: Record[bytes, bytes], most: int | None = PREVIEW) -> dict[str, Any]:
        """Return a record; texts have at most `most` characters."""
        row: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "timestamp_type": record.timestamp_type.name,
        }
        for part, data in (("key", record.key), ("value", record.value)):
            text, kind = self.part(record, part)
            is_cut = most is not None and text is not None and len(text) > most
            row[part] = text[:most] if is_cut and text is not None else text
            row[f"{part}_kind"] = kind
            row[f"{part}_size"] = None if data is None else len(data)
            row[f"{part}_shortened"] = is_cut
        headers = self.headers(record)
        if most is not None:
            headers = [{"name": each["name"], "value": each["value"] and each["value"][:most]} for each in headers]
        row["headers"] = headers
        return row


def text_of(data: bytes) -> tuple[str, str]:
    """Return bytes as text, and its kind: json, text, or bytes with escapes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return escaped_text(data), "bytes"
    if text[:1] in ("{", "["):
        if len(text) > _LONGEST_PARSED:
            return text, "json"
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return text, "json"
    return (text, "text") if _is_readable(text) else (escaped_text(data), "bytes")


def _is_readable(text: str) -> bool:
    return all(character.isprintable() or character in "\n\r\t" for character in text[:2000])


def search(consumer: Consumer[bytes, bytes], admin: api.Admin, wanted: Search, decoder: Decoder) -> Found:
    """Read records. Ends at the limit, at the ends of the partitions, or after `MOST_SCANNED` records or `SCAN_S`."""
    began_s = time.monotonic()
    tps = [TopicPartition(wanted.topic, partition) for partition in wanted.partitions]
    first = {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(tps, api.OffsetSpec.EARLIEST)).items()}
    ends = {tp: at.offset for tp, at in admin.list_offsets(dict.fromkeys(tps, api.OffsetSpec.LATEST)).items()}
    starts, newest = _starts(admin, wanted, first, ends)
    scan = _Scan(wanted, decoder, {tp: at for tp, at in starts.items() if at < ends[tp]}, ends, newest=newest)
    if scan.left:
        consumer.assign(list(scan.left))
        for tp, at in scan.left.items():
            consumer.seek(tp, at)
        deadline_s = began_s + SCAN_S
        while scan.goes_on and (left_s := deadline_s - time.monotonic()) > 0:
            scan.take(consumer.poll(min(_POLL_S, left_s), max_records=_POLL_RECORDS))
            # Offsets without records (of transactions, or compacted) are passed without being returned.
            for tp in list(scan.left):
                scan.reach(tp, consumer.position(tp))
    rows = scan.rows()
    remaining = sum(max(0, ends[tp] - at) for tp, at in scan.next.items())
    return Found(
        rows,
        scan.scanned,
        time.monotonic() - began_s,
        0 if newest else remaining,
        {tp.partition: at for tp, at in scan.next.items()},
        decoder.notice,
    )


def _starts(
    admin: api.Admin,
    wanted: Search,
    first: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], bool]:
    """Return where each partition is read from, and whether the newest records are wanted."""
    if wanted.timestamp_ms is not None:
        found = admin.list_offsets(dict.fromkeys(first, wanted.timestamp_ms))
        return {tp: at.offset if at.offset >= 0 else ends[tp] for tp, at in found.items()}, False
    if wanted.starts is not None:
        given = wanted.starts
        return {tp: min(max(given.get(tp.partition, ends[tp]), at), ends[tp]) for tp, at in first.items()}, False
    # A search of the newest records reads a part of the log that the limits allow.
    each = MOST_SCANNED // max(1, len(first)) if wanted.filters else wanted.limit
    return {tp: max(at, ends[tp] - each) for tp, at in first.items()}, True


class _Match(NamedTuple):
    """A record that a search found; a large one as its shortened row, so that memory stays bounded."""

    timestamp_ms: int
    offset: int
    found: Record[bytes, bytes] | dict[str, Any]


def _match(record: Record[bytes, bytes], decoder: Decoder) -> _Match:
    parts = (record.key, record.value, *(value for _, value in record.headers))
    is_large = sum(len(part) for part in parts if part is not None) > _LARGE
    return _Match(record.timestamp, record.offset, decoder.row(record) if is_large else record)


class _Scan:
    """The progress of one search."""

    def __init__(
        self,
        wanted: Search,
        decoder: Decoder,
        left: dict[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        newest: bool,
    ) -> None:
        self._wanted = wanted
        self._decoder = decoder
        self._ends = ends
        self._newest = newest
        self._key = wanted.key.casefold()
        self._text = wanted.text.casefold()
        self._found: list[_Match] = []
        self.left = left
        self.next = dict(left)
        self.scanned = 0
        self._is_full = False

    @property
    def goes_on(self) -> bool:
        return bool(self.left) and self.scanned < MOST_SCANNED and not self._is_full

    def take(self, records: Sequence[Record[bytes, bytes]]) -> None:
        """Compare records. With a start, the search ends with the record that reaches the limit."""
        for record in records:
            tp = record.topic_partition
            if tp not in self.left or record.offset >= self._ends[tp]:
                continue
            if self._is_full:
                break
            self.scanned += 1
            self.next[tp] = record.offset + 1
            if self._matches(record):
                self._found.append(_match(record, self._decoder))
                self._is_full = not self._newest and len(self._found) >= self._wanted.limit
                # The newest ones replace the oldest: memory stays bounded.
                if self._newest and len(self._found) > 4 * self._wanted.limit + 1000:
                    self._found = self.shown()

    def reach(self, tp: TopicPartition, position: int) -> None:
        """Note the position of the consumer in a partition."""
        if self._is_full:
            return
        if position >= self._ends[tp]:
            self.next[tp] = self._ends[tp]
            del self.left[tp]

    def shown(self) -> list[_Match]:
        """Return the records to show: the newest first, or in the order of their offsets."""
        if self._newest:
            newest = sorted(self._found, key=lambda each: (each.timestamp_ms, each.offset), reverse=True)
            return newest[: self._wanted.limit]
        return self._found

    def rows(self) -> list[dict[str, Any]]:
        """Return the records to show as plain data."""
        return [
            self._decoder.row(each.found) if isinstance(each.found, Record) else each.found for each in self.shown()
        ]

    def _matches(self, record: Record[bytes, bytes]) -> bool:
        if not self._wanted.filters:
            return True
        key = self._decoder.part(record, "key")[0] or ""
        if self._key and self._key not in key.casefold():
            return False
        if not self._text:
            return True
        if self._text in key.casefold() or self._text in (self._decoder.part(record, "value")[0] or "").casefold():
            return True
        headers = self._decoder.headers(record)
        return any(self._text in f"{each['name']}: {each['value']}".casefold() for each in headers)


def one(consumer: Consumer[bytes, bytes], topic: str, partition: int, offset: int) -> Record[bytes, bytes] | None:
    """Return the record at an offset; None if there is no record."""
    tp = TopicPartition(topic, partition)
    first, end = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
    if not first <= offset < end:
        return None
    consumer.assign([tp])
    consumer.seek(tp, offset)
    deadline_s = time.monotonic() + SCAN_S
    while time.monotonic() < deadline_s:
        records = consumer.poll(_POLL_S, max_records=1)
        if records:
            return records[0] if records[0].offset == offset else None
        if consumer.position(tp) > offset:
            return None
    return None


def base64_text(data: bytes | None) -> str | None:
    """Return bytes in base64, for programs."""
    return None if data is None else base64.b64encode(data).decode()
