"""The metrics that clients push, in OTLP's protobuf format (`MetricsData`). KIP-714.

`decode` reads what other clients send, `encode` writes what Ottla's clients send. Both know the few fields that client
metrics have: gauges and sums, and of histograms and summaries the count and the sum. Unknown fields are skipped. The
package `opentelemetry-proto` has the same messages, and needs `protobuf`, which the base installation does not have.

Clients are not trusted: a field takes two bytes, and a push of them compresses to nothing. `decode` therefore builds no
list of fields, limits their number, and yields between them.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ottla.protocol.wire import uvarint

R = TypeVar("R")
Attributes: TypeAlias = tuple[tuple[str, str], ...]

MOST_FIELDS: Final = 300_000
"""Of one push, nested ones included: enough for 10,000 points with several attributes."""
FIELDS_AT_ONCE: Final = 1_000
"""How many fields are read before `decode` yields None."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_DOUBLE = struct.Struct("<d")
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")
_DELTA, _CUMULATIVE = 1, 2
# Of the message Metric: the field of each kind of metric.
_GAUGE, _SUM, _HISTOGRAM, _SUMMARY = 5, 7, 9, 11
# The field with the attributes differs between the data points.
_ATTRIBUTES: Final = {_GAUGE: 7, _SUM: 7, _HISTOGRAM: 9, _SUMMARY: 7}
_VALUES: Final = (4, 5, 6)
"""The fields with the values of all kinds of data points."""
_MOST_ATTRIBUTES: Final = 32
_LONGEST_NAME: Final = 1_000
"""In bytes. A longer name is empty: it would be copied for each point."""


class OtlpError(ValueError):
    """The bytes are not metrics in OTLP's format."""


class Point(NamedTuple):
    """One value of one metric. `attributes` has the attributes of its client (the resource), then its own."""

    name: str
    value: float
    attributes: Attributes = ()
    is_counter: bool = False
    """Whether the value only grows."""
    is_delta: bool = False
    """Whether the value is the difference to the previous push."""


_Field: TypeAlias = tuple[int, memoryview | int]
"""The number of a field, and its bytes; the number itself for a varint."""


_Pauses: TypeAlias = Generator[None, None, R]
"""Yields where other work may run, and returns a result."""


def decode(data: bytes | bytearray | memoryview) -> Iterator[Point | None]:
    """Yield the points of a push, one by one, and None after FIELDS_AT_ONCE fields: other work may run there.

    Raises OtlpError where the bytes are malformed, or above MOST_FIELDS.
    """
    return _Reader().metrics(memoryview(data))


class _Reader:
    """Reads one push, and counts its fields."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def metrics(self, data: memoryview) -> Iterator[Point | None]:
        for number, part in self._fields(data):
            if self._is_due():
                yield None
            if number == 1 and isinstance(part, memoryview):
                yield from self._of_resource(part)

    def _of_resource(self, data: memoryview) -> Iterator[Point | None]:
        """The resource may follow its metrics: the first pass reads it, the second one reads the metrics."""
        resource: list[tuple[str, str]] = []
        for number, part in self._fields(data):
            if self._is_due():
                yield None
            if number == 1 and isinstance(part, memoryview):
                yield from self._attributes(part, resource)
        for number, part in self._fields(data):
            if self._is_due():
                yield None
            if number == 2 and isinstance(part, memoryview):
                yield from self._of_scope(part, tuple(resource))

    def _of_scope(self, data: memoryview, resource: Attributes) -> Iterator[Point | None]:
        for number, part in self._fields(data):
            if self._is_due():
                yield None
            if number == 2 and isinstance(part, memoryview):
                yield from self._of_metric(part, resource)

    def _of_metric(self, data: memoryview, resource: Attributes) -> Iterator[Point | None]:
        name = ""
        for number, value in self._fields(data):
            if self._is_due():
                yield None
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                name = _text(value) if len(value) <= _LONGEST_NAME else ""
            elif number in _ATTRIBUTES:
                yield from self._points(name, number, value, resource)

    def _points(self, name: str, kind: int, data: memoryview, resource: Attributes) -> Iterator[Point | None]:
        """The first pass reads what holds for all points and may follow them, the second one reads the points."""
        temporality, is_monotonic = _CUMULATIVE, kind in (_HISTOGRAM, _SUMMARY)
        for number, value in self._fields(data):
            if self._is_due():
                yield None
            if number == 2 and isinstance(value, int):
                temporality = value
            elif number == 3 and isinstance(value, int):
                is_monotonic = bool(value)
        is_delta = kind != _GAUGE and temporality == _DELTA
        for number, point in self._fields(data):
            if self._is_due():
                yield None
            if number != 1 or not isinstance(point, memoryview):
                continue
            own, values = yield from self._point(point, kind)
            attributes = resource + own
            if kind in (_GAUGE, _SUM):
                number_of_point = _number(values)
                if number_of_point is not None:
                    yield Point(name, number_of_point, attributes, kind == _SUM and is_monotonic, is_delta)
                continue
            for field, suffix, form in ((4, ".count", _UINT64), (5, ".sum", _DOUBLE)):
                if field in values:
                    yield Point(name + suffix, _unpacked(form, values[field]), attributes, is_monotonic, is_delta)

    def _point(self, data: memoryview, kind: int) -> _Pauses[tuple[Attributes, dict[int, memoryview | int]]]:
        """Return the attributes of a data point and its values by their fields."""
        found: list[tuple[str, str]] = []
        values: dict[int, memoryview | int] = {}
        for number, value in self._fields(data):
            if self._is_due():
                yield
            if number == _ATTRIBUTES[kind] and isinstance(value, memoryview):
                yield from self._attribute(value, found)
            elif number in _VALUES:
                values[number] = value
        return tuple(found), values

    def _attributes(self, data: memoryview, found: list[tuple[str, str]]) -> _Pauses[None]:
        """Add the attributes of a resource to `found`."""
        for number, pair in self._fields(data):
            if self._is_due():
                yield
            if number == 1 and isinstance(pair, memoryview):
                yield from self._attribute(pair, found)

    def _attribute(self, pair: memoryview, found: list[tuple[str, str]]) -> _Pauses[None]:
        """Add an attribute to `found`, unless it has no plain value or exceeds the limit."""
        key, text = "", None
        for part, value in self._fields(pair):
            if self._is_due():
                yield
            if not isinstance(value, memoryview):
                continue
            if part == 1:
                key = _text(value)
            elif part == 2:
                text = yield from self._any_value(value)
        if key and text is not None and len(found) < _MOST_ATTRIBUTES:
            found.append((key, text))

    def _any_value(self, data: memoryview) -> _Pauses[str | None]:
        for number, value in self._fields(data):
            if self._is_due():
                yield
            if number == 1 and isinstance(value, memoryview):
                return _text(value)
            if number == 2:
                return "true" if value else "false"
            if number == 3 and isinstance(value, int):
                return str(value - (1 << 64) if value >> 63 else value)
            if number == 4:
                return repr(_unpacked(_DOUBLE, value))
        return None

    # -- the wire format of protobuf ---------------------------------------------------------------------------

    def _is_due(self) -> bool:
        """Whether to yield after the field that was just read. Called once for each field."""
        return self._left % FIELDS_AT_ONCE == 0

    def _fields(self, data: memoryview) -> Iterator[_Field]:
        position, end = 0, len(data)
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise OtlpError(f"more than {MOST_FIELDS} fields")
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            if kind == _LENGTH:
                size, position = _varint(data, position)
            elif kind in _SIZES:
                size = _SIZES[kind]
            else:
                raise OtlpError(f"unknown wire type {kind}")
            if size > end - position:
                raise OtlpError(f"a field of {size} bytes, where {end - position} are left")
            yield tag >> 3, data[position : position + size]
            position += size


def _number(values: Mapping[int, memoryview | int]) -> float | None:
    """The value of a NumberDataPoint: `as_double` or `as_int`."""
    if 4 in values:
        return _unpacked(_DOUBLE, values[4])
    return _unpacked(_INT64, values[6]) if 6 in values else None


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    result = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise OtlpError("a varint does not end")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise OtlpError(f"a text is not UTF-8: {error}") from error


def _unpacked(form: struct.Struct, data: memoryview | int) -> float:
    if isinstance(data, int) or len(data) != form.size:
        raise OtlpError("a number of a data point is not 8 bytes long")
    number: float = form.unpack(data)[0]
    return number


# -- encoding --------------------------------------------------------------------------------------------------


def encode(points: Iterable[Point], resource: Mapping[str, str], started_ns: int, now_ns: int) -> bytes:
    """Return the metrics as MetricsData: each point as a metric of its own, as Kafka's clients do."""
    times = b"\x11" + _UINT64.pack(started_ns) + b"\x19" + _UINT64.pack(now_ns)
    attributes = b"".join(_sized(1, _pair(key, text)) for key, text in resource.items())
    metrics = b"".join(_sized(2, _metric(point, times)) for point in points)
    return _sized(1, _sized(1, attributes) + _sized(2, metrics))


def _metric(point: Point, times: bytes) -> bytes:
    attributes = b"".join(_sized(7, _pair(key, text)) for key, text in point.attributes)
    data = _sized(1, times + b"\x21" + _DOUBLE.pack(point.value) + attributes)
    if point.is_counter:
        # aggregation_temporality, is_monotonic
        data += bytes((0x10, _DELTA if point.is_delta else _CUMULATIVE, 0x18, 1))
    return _sized(1, point.name.encode()) + _sized(_SUM if point.is_counter else _GAUGE, data)


def _pair(key: str, text: str) -> bytes:
    return _sized(1, key.encode()) + _sized(2, _sized(1, text.encode(errors="replace")))


def _sized(field: int, data: bytes) -> bytes:
    return bytes((field << 3 | _LENGTH,)) + uvarint(len(data)) + data
