"""Write records by a template: `Writer.lines(records)` returns the bytes of many records.

If no field has an encoding, the template becomes one bytes format per partition, so that one C call formats a record.
Other templates are written part by part in Python.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Protocol

from ottla.tools.formats.escaping import NULL, escaped, visible
from ottla.tools.formats.template import Field, Part

Put = Callable[["Readable"], bytes]


class Readable(Protocol):
    """The attributes of a record that a writer needs; `ottla.clients.Record` has them."""

    topic: ClassVar[str]
    partition: ClassVar[int]

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


VISIBLE = "visible"
"""An encoding that format strings do not have; see `for_terminal_only`."""

_INDEX = {"offset": 0, "timestamp": 1, "key": 2, "value": 3}
_DIRECT = {"key": b"%b", "value": b"%b", "offset": b"%d", "timestamp": b"%d"}


class Writer:
    """Writes records by one template. `null` is written for a null key or value."""

    def __init__(self, parts: Sequence[Part], *, null: bytes = b"") -> None:
        self._puts = _compile(parts, null)
        self._parts = parts
        fields = [part for part in parts if isinstance(part, Field)]
        names = [field.name for field in fields]
        self._is_direct = all(
            not f.encoding and (f.name in _DIRECT or f.name in ("topic", "partition")) for f in fields
        )
        indices = [_INDEX[name] for name in names if name in _INDEX]
        self._take: Callable[[Any], Any] | None = itemgetter(*indices) if indices else None
        self._direct: dict[type[Any], Callable[[Any], bytes]] = {}

    def lines(self, records: Iterable[Readable]) -> bytes:
        """Write all records, one after another."""
        if not self._is_direct or self._take is None:
            return b"".join([self.line(record) for record in records])
        pieces: list[bytes] = []
        for kind, run in groupby(records, type):
            batch = list(run)
            try:
                pieces.append(b"".join(map(self._template(kind), map(self._take, batch))))
            except TypeError:  # a key or value is null
                pieces.extend(self.line(record) for record in batch)
        return b"".join(pieces)

    def line(self, record: Readable) -> bytes:
        """Write one record."""
        return b"".join([put(record) for put in self._puts])

    def _template(self, kind: type[Any]) -> Callable[[Any], bytes]:
        made = self._direct.get(kind)
        if made is None:
            text = b"".join(_direct_part(part, kind) for part in self._parts)
            made = self._direct[kind] = text.__mod__
        return made


def _direct_part(part: Part, kind: type[Any]) -> bytes:
    if isinstance(part, bytes):
        return part.replace(b"%", b"%%")
    if part.name == "topic":
        return str(kind.topic).encode().replace(b"%", b"%%")
    return b"%d" % kind.partition if part.name == "partition" else _DIRECT[part.name]


def _compile(parts: Sequence[Part], null: bytes) -> list[Put]:
    sized: set[str] = set()
    puts: list[Put] = []
    for index, part in enumerate(parts):
        if isinstance(part, bytes):
            puts.append(lambda _, data=part: data)  # type: ignore[misc]
            continue
        if part.name.endswith("_size"):
            sized.add(part.name.removesuffix("_size"))
        following = parts[index + 1] if index + 1 < len(parts) else b""
        stop = delimiter_character(following)
        puts.append(_put(part, b"" if part.name in sized else null, stop))
    return puts


def delimiter_character(following: Part) -> str:
    """Return the character that a field must escape so that a reader finds the next literal; "" if none can."""
    first = following[:1].decode("ascii", "replace") if isinstance(following, bytes) else ""
    return first if first.isprintable() and first not in ("�", "\\") and not first.isalnum() else ""


def _put(field: Field, null: bytes, stop: str) -> Put:
    name, encoding = field.name, field.encoding
    if name in ("key", "value"):
        show = bytes_writer(encoding, null, stop)
        return lambda record: show(getattr(record, name))
    if name == "topic":
        show = bytes_writer(encoding, null, stop)
        return lambda record: show(record.topic.encode())
    if name == "headers":
        return _headers(field, null, stop)
    number = _number_writer(encoding)
    if name.endswith("_size"):
        of = name.removesuffix("_size")
        return lambda record: number(-1 if getattr(record, of) is None else len(getattr(record, of)))
    if name == "header_count":
        return lambda record: number(len(record.headers))
    return lambda record: number(getattr(record, name))


def bytes_writer(encoding: str, null: bytes, stop: str = "") -> Callable[[bytes | None], bytes]:
    """Return the function that writes bytes in an encoding of the template."""
    if encoding == "escaped":
        return lambda data: NULL if data is None else escaped(data, stop)
    if encoding == VISIBLE:
        return lambda data: null if data is None else visible(data)
    if encoding == "hex":
        return lambda data: null if data is None else data.hex().encode()
    if encoding == "base64":
        return lambda data: null if data is None else binascii.b2a_base64(data, newline=False)
    return lambda data: null if data is None else data


def _number_writer(encoding: str) -> Callable[[int], bytes]:
    if not encoding:
        return lambda number: b"%d" % number
    if encoding == "iso":
        return lambda number: iso(number).encode()
    if encoding.startswith("strftime["):
        pattern = encoding[len("strftime[") : -1]
        return lambda number: _strftime(number, pattern).encode()
    order, size = number_layout(encoding)
    mask = (1 << 8 * size) - 1
    return lambda number: (number & mask).to_bytes(size, order)


def number_layout(encoding: str) -> tuple[Any, int]:
    """Return the byte order and the size in bytes of an encoding such as "big32"."""
    order = "big" if encoding.startswith("big") else "little"
    return order, int(encoding.removeprefix(order)) // 8


def moment(timestamp_ms: int) -> datetime | None:
    """Convert a timestamp to a date in UTC; None if it is out of range."""
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def iso(timestamp_ms: int) -> str:
    """`2026-01-31T12:00:00.123Z`; the number itself if it is out of range, and for -1, which means none."""
    when = moment(timestamp_ms) if timestamp_ms != -1 else None
    return str(timestamp_ms) if when is None else f"{when:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _strftime(timestamp_ms: int, pattern: str) -> str:
    when = moment(timestamp_ms)
    return str(timestamp_ms) if when is None else when.strftime(pattern)


def _headers(field: Field, null: bytes, stop: str) -> Put:
    if field.inner is None:
        return lambda record: b",".join([header_text(name, value, stop) for name, value in record.headers])
    puts = _compile(field.inner, null)

    def nested(record: Readable) -> bytes:
        return b"".join([put(_Header(name, value)) for name, value in record.headers for put in puts])

    return nested


def header_text(name: str, value: bytes | None, stop: str = "") -> bytes:
    """`name=value`, `name` alone for a null value; an empty name is `\\e`."""
    shown = escaped(name.encode(), ",=" + stop) or b"\\e"
    return shown if value is None else shown + b"=" + escaped(value, "," + stop)


class _Header:
    """A header with the attributes of a record, for the parts of `%h{...}`."""

    topic: ClassVar[str] = ""
    partition: ClassVar[int] = -1
    offset = timestamp = -1
    headers: list[tuple[str, bytes | None]] = []

    def __init__(self, name: str, value: bytes | None) -> None:
        self.key = name.encode()
        self.value = value


def for_terminal_only(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the template with unencoded fields escaped: records must not send control sequences to a terminal."""
    return tuple(
        part._replace(
            encoding=part.encoding or (VISIBLE if part.name in ("key", "value", "topic") else ""),
            inner=None if part.inner is None else for_terminal_only(part.inner),
        )
        if isinstance(part, Field)
        else part
        for part in parts
    )
