"""Records as JSON Lines: one object per line, written and read without loss.

    {"topic":"t","partition":0,"offset":7,"timestamp":1769860800123,"key":"k","value":"v","headers":[]}

A key, value or header value is null, or a string if it is UTF-8; otherwise its field is `key_base64` or `value_base64`.
Headers are objects of `name` and `value` in order; names may repeat. With `inline` a value that is valid JSON is
embedded, and any other value is in `value_text` (or `value_base64`).
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from json.encoder import encode_basestring  # quotes a str; in C
from typing import Any, BinaryIO

from ottla.tools.formats.record_reader import MAX_RECORD, BadRecord, NewRecord
from ottla.tools.formats.record_writer import Readable

_KNOWN = frozenset(
    {"topic", "partition", "offset", "timestamp", "headers", "key", "key_base64", "value", "value_base64", "value_text"}
)


def _not_json(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def write_lines(records: Iterable[Readable], *, inline: bool = False) -> str:
    """Format the records as lines of JSON."""
    value_of = _inline_value if inline else _value
    return "".join(
        [
            f'{{"topic":{_quoted(r.topic)},"partition":{r.partition},"offset":{r.offset},"timestamp":{r.timestamp},'
            f"{_field('key', r.key)},{value_of(r.value)},"
            f'"headers":[{_headers(r.headers) if r.headers else ""}]}}\n'
            for r in records
        ]
    )


@lru_cache(1024)
def _quoted(text: str) -> str:
    return str(encode_basestring(text))


def _field(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{encode_basestring(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{binascii.b2a_base64(data, newline=False).decode()}"'


def _value(data: bytes | None) -> str:
    return _field("value", data)


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    return ",".join(f'{{"name":{encode_basestring(name)},{_field("value", value)}}}' for name, value in headers)


def _inline_value(data: bytes | None) -> str:
    if data is None:
        return '"value":null'
    try:
        text = data.decode()
        # A reader would take the embedded value `null` for a null value.
        if json.loads(text, parse_constant=_not_json) is not None:
            # A line break in valid JSON is only white space, but it would end the line.
            one_line = text.replace("\n", " ").replace("\r", " ")
            return f'"value":{one_line}'
    except UnicodeDecodeError:
        return _field("value", data)
    except (ValueError, RecursionError):
        pass
    return f'"value_text":{encode_basestring(text)}'


def read_lines(stream: BinaryIO, *, inline: bool = False) -> Iterator[tuple[int, NewRecord | BadRecord]]:
    """Yield line numbers from 1 and their records; skips empty lines. With `inline` every `value` is JSON."""
    number = 0
    while line := stream.readline(MAX_RECORD):
        number += 1
        if line.isspace():
            continue
        try:
            yield number, _record(line, inline=inline)
        except BadRecord as error:
            yield number, error


def _record(line: bytes, *, inline: bool) -> NewRecord:
    try:
        row = json.loads(line, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadRecord(f"not a JSON object, but {line[:40].decode(errors='replace').strip()!r}")
    unknown = row.keys() - _KNOWN
    if unknown:
        raise BadRecord(f"{min(unknown)!r} is unknown; the fields are {', '.join(sorted(_KNOWN))}")
    value = row.get("value")
    value = _dumped(value) if inline and value is not None else _bytes(row, "value")
    return NewRecord(
        _bytes(row, "key"),
        value,
        _read_headers(row.get("headers")),
        _number(row, "partition", 2**31 - 1),
        _number(row, "timestamp", 2**63 - 1),
        _topic(row),
    )


def _bytes(row: Mapping[str, Any], name: str) -> bytes | None:
    given = [key for key in (name, f"{name}_base64", f"{name}_text") if row.get(key) is not None]
    if len(given) > 1:
        raise BadRecord(f"{given[0]!r} and {given[1]!r} exclude each other")
    if not given:
        return None
    data = row[given[0]]
    if given[0] == name and not isinstance(data, str):
        return _dumped(data)
    if not isinstance(data, str):
        raise BadRecord(f"{given[0]!r} is not a string")
    try:
        return binascii.a2b_base64(data, strict_mode=True) if given[0].endswith("_base64") else data.encode()
    except ValueError as error:  # not base64, not ASCII, or a lone surrogate
        raise BadRecord(f"{given[0]!r}: {error}") from error


def _dumped(data: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"cannot be written as JSON: {error}") from error


def _number(row: Mapping[str, Any], name: str, most: int) -> int | None:
    number = row.get(name)
    if number is None or number == -1:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise BadRecord(f"{name!r} must be a whole number from 0 to {most}, not {str(number)[:40]!r}")
    return number


def _topic(row: Mapping[str, Any]) -> str | None:
    topic = row.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise BadRecord("'topic' is not a string")
    return topic


def _read_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Parse headers as `write_lines` writes them, or from an object of names and values."""
    if headers is None:
        return []
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list):
        raise BadRecord("'headers' must be an array of objects with name and value, or one object")
    made = []
    for header in headers:
        name = header.get("name") if isinstance(header, dict) else None
        if not isinstance(name, str):
            raise BadRecord("a header must be an object with name and value")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise BadRecord(f"a header's name: {error}") from error
        made.append((name, _bytes(header, "value")))
    return made
