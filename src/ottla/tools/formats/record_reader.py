"""Read records by a template: `read_records(template, stream)` is the inverse of `record_writer`.

A template that ends in a line break and has no sizes is read line by line: a line that does not fit is a `BadRecord`,
and reading continues with the next line. Any other template is read as a stream: a record that does not fit is fatal.
A field ends at the next literal, or after the number of bytes that a size field before it gives.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import BinaryIO, NamedTuple

from ottla.tools.formats.escaping import NULL, NotEscaped, unescaped
from ottla.tools.formats.record_writer import delimiter_character, number_layout
from ottla.tools.formats.template import Field, FormatError, Part

MAX_RECORD = 256 << 20
"""The longest record; the search for a missing delimiter ends here."""
_PIECE = 1 << 16
_NUMBER = re.compile(rb"-?[0-9]{1,20}")
_MAX_HEADERS = 1_000_000


class NewRecord(NamedTuple):
    """A record to produce; None for parts that the input does not give, and for a null key or value."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


class BadRecord(ValueError):
    """The input does not fit the format at this record. `fatal` if the rest of the input cannot be read either."""

    fatal = False


class _Source:
    """Bytes to parse, from memory and, as needed, from a stream."""

    __slots__ = ("_stream", "data", "position")

    def __init__(self, data: bytes = b"", stream: BinaryIO | None = None) -> None:
        self.data = data
        self.position = 0
        self._stream = stream

    def at_end(self) -> bool:
        return self.position >= len(self.data) and not self._more(1)

    def _more(self, wanted: int) -> bool:
        """Read more bytes from the stream and drop the parsed ones; returns False at the end."""
        if self._stream is None:
            return False
        rest = self.data[self.position :]
        if len(rest) > MAX_RECORD:
            raise BadRecord(f"it is longer than {MAX_RECORD >> 20} MiB")
        piece = self._stream.read(min(max(wanted, _PIECE, len(rest)), MAX_RECORD))
        self.data, self.position = rest + piece, 0
        return bool(piece)

    def exactly(self, count: int, what: str) -> bytes:
        if count > MAX_RECORD:
            raise BadRecord(f"its {what} would have {count:,} bytes; {MAX_RECORD:,} is the most")
        while len(self.data) - self.position < count:
            if not self._more(count - (len(self.data) - self.position)):
                left = len(self.data) - self.position
                raise BadRecord(f"its {what} should have {count:,} bytes, {left:,} are left")
        start, self.position = self.position, self.position + count
        return self.data[start : self.position]

    def until(self, delimiter: bytes, what: str) -> bytes:
        looked = 0
        while True:
            found = self.data.find(delimiter, self.position + looked)
            if found >= 0:
                start, self.position = self.position, found
                return self.data[start:found]
            looked = max(0, len(self.data) - self.position - len(delimiter))
            if not self._more(1):
                raise BadRecord(f"no {_shown(delimiter)} after its {what}")

    def rest(self) -> bytes:
        while self._more(_PIECE):
            pass
        start, self.position = self.position, len(self.data)
        return self.data[start:]

    def literal(self, data: bytes, *, last: bool) -> None:
        while len(self.data) - self.position < len(data):
            if not self._more(len(data)):
                break
        if self.data.startswith(data, self.position):
            self.position += len(data)
        elif not (last and self.position == len(self.data)):
            there = self.data[self.position : self.position + len(data)]
            raise BadRecord(f"{_shown(data)} expected, {_shown(there) if there else 'nothing'} found")

    def number(self, what: str) -> int:
        while len(self.data) - self.position < 21 and self._more(21):
            pass
        match = _NUMBER.match(self.data, self.position)
        if match is None:
            raise BadRecord(f"its {what} is not a number: {_shown(self.data[self.position : self.position + 12])}")
        self.position = match.end()
        return int(match[0])


def _shown(data: bytes) -> str:
    return ascii(data)[1:]


class Template:
    """A template for reading. Raises FormatError if the ends of its fields are ambiguous."""

    def __init__(self, parts: Sequence[Part], *, null: bytes | None = None) -> None:
        self.parts = tuple(parts)
        self.null = null
        fields = [part for part in self.parts if isinstance(part, Field)]
        if not any(field.name in ("key", "value", "headers") for field in fields):
            raise FormatError("the format has none of the fields %k %v %h: there would be nothing to produce")
        _check(self.parts, set())
        sized = any(
            f.encoding.startswith(("big", "little")) or f.name in ("key_size", "value_size") for f in _deep(fields)
        )
        last = self.parts[-1]
        self.lines = 0
        if not sized and isinstance(last, bytes) and last.endswith(b"\n"):
            self.lines = sum(part.count(b"\n") for part in self.parts if isinstance(part, bytes))
            if any(isinstance(p, bytes) and b"\n" in p for f in fields if f.inner for p in f.inner):
                self.lines = 0

    def read(self, source: _Source) -> NewRecord:
        """Read the next record. Raises BadRecord."""
        found: dict[str, object] = {}
        last = len(self.parts) - 1
        for index, part in enumerate(self.parts):
            if isinstance(part, bytes):
                source.literal(part, last=index == last)
            else:
                following = self.parts[index + 1] if index < last else None
                found[part.name] = _read_field(part, following, source, found, self.null)
        return _record(found)


def _deep(fields: Sequence[Field]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from (part for part in field.inner or () if isinstance(part, Field))


def _check(parts: Sequence[Part], known: set[str]) -> None:
    """Raise FormatError unless the end of each field can be found."""
    for index, part in enumerate(parts):
        if isinstance(part, bytes):
            continue
        following = parts[index + 1] if index + 1 < len(parts) else None
        name = part.name
        if part.encoding.startswith("strftime["):
            raise FormatError("a timestamp written with strftime cannot be read; use %T or %T{iso}")
        if name in known:
            raise FormatError(f"the format has the {name.replace('_', ' ')} twice")
        if part.inner is not None:
            if "header_count" not in known:
                raise FormatError("%h{...} needs the number of headers before it, as %H")
            _check((*part.inner, Field("next_header")), set())
        elif name in ("key", "value") and f"{name}_size" in known and not part.encoding:
            pass
        elif not (part.encoding.startswith(("big", "little"))):
            _check_end(part, following)
        known.add(name)


def _check_end(part: Field, following: Part | None) -> None:
    name = part.name.replace("_", " ")
    if isinstance(following, Field):
        raise FormatError(f"the format has no text between the {name} and the {following.name.replace('_', ' ')}")
    if following is None:
        return
    is_number = part.name not in ("key", "value", "topic", "headers") and part.encoding != "iso"
    first = chr(following[0])
    if is_number and (first.isdigit() or first == "-"):
        raise FormatError(f"{first!r} after the {name} in the format could be a part of the number")
    if part.encoding in ("hex", "base64") and (first.isalnum() or first in "+/="):
        raise FormatError(f"{first!r} after the {name} in the format could be a part of the {part.encoding}")
    written_escaped = part.encoding == "escaped" or part.name == "headers"
    if (
        first == "\\"
        or (name == "headers" and first in ",=")
        or (written_escaped and not (delimiter_character(following) or first < " "))
    ):
        raise FormatError(f"{first!r} after the {name} in the format could be a part of it")


def _read_field(
    field: Field, following: Part | None, source: _Source, found: dict[str, object], null: bytes | None
) -> object:
    name = field.name
    what = name.replace("_", " ")
    if name == "headers" and field.inner is not None:
        return _read_headers(field.inner, int(found["header_count"]), source, null)  # type: ignore[call-overload]
    if field.encoding.startswith(("big", "little")):
        order, size = number_layout(field.encoding)
        return int.from_bytes(source.exactly(size, what), order, signed=True)
    size_known = found.get(f"{name}_size")
    if isinstance(size_known, int) and not field.encoding:
        if size_known < -1:
            raise BadRecord(f"the size of its {what} is {size_known}")
        return None if size_known == -1 else source.exactly(size_known, what)
    if name not in ("key", "value", "topic", "headers") and field.encoding != "iso":
        return source.number(what)
    text = source.until(following, what) if isinstance(following, bytes) else source.rest()
    if name == "headers":
        return read_header_list(text)
    if field.encoding == "iso":
        return _moment(text)
    return decoded(text, field.encoding, null, what)


def decoded(text: bytes, encoding: str, null: bytes | None, what: str) -> bytes | None:
    """Decode a key or value from its encoding. Raises BadRecord."""
    if encoding == "escaped":
        try:
            return None if text == NULL else unescaped(text)
        except NotEscaped as error:
            raise BadRecord(f"its {what}: {error}") from error
    if null is not None and text == null:
        return None
    try:
        if encoding == "hex":
            return bytes.fromhex(text.decode("ascii"))
        return binascii.a2b_base64(text, strict_mode=True) if encoding == "base64" else text
    except ValueError as error:  # binascii.Error and UnicodeDecodeError are ValueErrors
        raise BadRecord(f"its {what} is not {encoding}: {error}") from error


def _moment(text: bytes) -> int:
    try:
        if _NUMBER.fullmatch(text):
            return int(text)
        when = datetime.fromisoformat(text.decode())
        return round(when.timestamp() * 1000)
    except ValueError as error:
        raise BadRecord(f"its timestamp is not a date: {_shown(text)}") from error


def _read_headers(
    inner: Sequence[Part], count: int, source: _Source, null: bytes | None
) -> list[tuple[str, bytes | None]]:
    if not 0 <= count <= _MAX_HEADERS:
        raise BadRecord(f"it should have {count} headers")
    headers = []
    for _ in range(count):
        found: dict[str, object] = {}
        for index, part in enumerate(inner):
            if isinstance(part, bytes):
                source.literal(part, last=False)
            else:
                following = inner[index + 1] if index + 1 < len(inner) else None
                found[part.name] = _read_field(part, following, source, found, null)
        name, value = found.get("key"), found.get("value")
        if not isinstance(name, bytes):
            raise BadRecord("a header has no name")
        headers.append((_text(name, "a header's name"), value if isinstance(value, bytes) else None))
    return headers


def read_header_list(text: bytes) -> list[tuple[str, bytes | None]]:
    """Parse headers from `name=value,name=value`, as `%h` writes them. Raises BadRecord."""
    headers: list[tuple[str, bytes | None]] = []
    for item in text.split(b",") if text else ():
        name, equals, value = item.partition(b"=")
        try:
            shown = b"" if name == b"\\e" else unescaped(name)
            headers.append((_text(shown, "a header's name"), unescaped(value) if equals else None))
        except NotEscaped as error:
            raise BadRecord(f"its headers: {error}") from error
    return headers


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"{what} is not UTF-8: {_shown(data[:40])}") from error


def _record(found: dict[str, object]) -> NewRecord:
    key, value, headers = found.get("key"), found.get("value"), found.get("headers") or ()
    partition, timestamp, topic = found.get("partition"), found.get("timestamp"), found.get("topic")
    return NewRecord(
        key if isinstance(key, bytes) else None,
        value if isinstance(value, bytes) else None,
        headers,  # type: ignore[arg-type]
        partition if isinstance(partition, int) and partition >= 0 else None,
        timestamp if isinstance(timestamp, int) and timestamp >= 0 else None,
        _text(topic, "its topic") if isinstance(topic, bytes) else None,
    )


def read_records(template: Template, stream: BinaryIO) -> Iterator[tuple[int, NewRecord | BadRecord]]:
    """Yield the line number (or record number, if the template has no lines) from 1, and the record."""
    return _by_lines(template, stream) if template.lines else _by_records(template, stream)


def _by_lines(template: Template, stream: BinaryIO) -> Iterator[tuple[int, NewRecord | BadRecord]]:
    parts = template.parts
    plain = parts == (Field("value"), b"\n") and template.null is None
    number = 1
    while line := stream.readline(MAX_RECORD):
        for _ in range(template.lines - 1):
            line += stream.readline(MAX_RECORD)
        if plain:
            yield number, NewRecord(value=line[:-1] if line[-1] == 10 else line)
        else:
            try:
                source = _Source(line if line.endswith(b"\n") else line + b"\n")
                record = template.read(source)
                if not source.at_end():
                    raise BadRecord(f"{_shown(source.data[source.position :][:40])} after the end of the record")
                yield number, record
            except BadRecord as error:
                yield number, error
        number += template.lines


def _by_records(template: Template, stream: BinaryIO) -> Iterator[tuple[int, NewRecord | BadRecord]]:
    source = _Source(stream=stream)
    number = 1
    try:
        while not source.at_end():
            yield number, template.read(source)
            number += 1
    except BadRecord as error:
        error.fatal = True
        yield number, error
