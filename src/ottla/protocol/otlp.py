"""The metrics that clients push, in OTLP's protobuf format (`MetricsData`). KIP-714.

`decode` reads what other clients send, `encode` writes what Ottla's clients send. Both know the few fields that client
metrics have: gauges and sums, and of histograms and summaries the count and the sum. Unknown fields are skipped. The
package `opentelemetry-proto` has the same messages, and needs `protobuf`, which the base installation does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.protocol.wire import uvarint

Attributes: TypeAlias = tuple[tuple[str, str], ...]

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
_MOST_ATTRIBUTES: Final = 32


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


def decode(data: bytes | bytearray | memoryview) -> Iterator[Point]:
    """Yield the points of a push, one by one. Raises OtlpError where the bytes are malformed."""
    for number, resource_metrics in _messages(memoryview(data)):
        if number == 1:
            yield from _of_resource(resource_metrics)


def _of_resource(data: memoryview) -> Iterator[Point]:
    parts = list(_messages(data))
    resource = tuple(pair for number, part in parts if number == 1 for pair in _attributes(part, 1))
    for number, scope in parts:
        if number == 2:
            for field, metric in _messages(scope):
                if field == 2:
                    yield from _of_metric(metric, resource)


def _of_metric(data: memoryview, resource: Attributes) -> Iterator[Point]:
    name = ""
    for number, value in _messages(data):
        if number == 1:
            name = _text(value)
        elif number in _ATTRIBUTES:
            yield from _points(name, number, value, resource)


def _points(name: str, kind: int, data: memoryview, resource: Attributes) -> Iterator[Point]:
    temporality, is_monotonic, points = _CUMULATIVE, kind in (_HISTOGRAM, _SUMMARY), []
    for number, value in _fields(data):
        if number == 1 and isinstance(value, memoryview):
            points.append(value)
        elif number == 2 and isinstance(value, int):
            temporality = value
        elif number == 3 and isinstance(value, int):
            is_monotonic = bool(value)
    is_delta = kind != _GAUGE and temporality == _DELTA
    for point in points:
        attributes = resource + _attributes(point, _ATTRIBUTES[kind])
        values = dict(_fields(point))
        if kind in (_GAUGE, _SUM):
            number_of_point = _number(values)
            if number_of_point is not None:
                yield Point(name, number_of_point, attributes, kind == _SUM and is_monotonic, is_delta)
            continue
        for field, suffix, form in ((4, ".count", _UINT64), (5, ".sum", _DOUBLE)):
            if field in values:
                yield Point(name + suffix, _unpacked(form, values[field]), attributes, is_monotonic, is_delta)


def _number(values: Mapping[int, memoryview | int]) -> float | None:
    """The value of a NumberDataPoint: `as_double` or `as_int`."""
    if 4 in values:
        return _unpacked(_DOUBLE, values[4])
    return _unpacked(_INT64, values[6]) if 6 in values else None


def _attributes(data: memoryview, field: int) -> Attributes:
    """The attributes in a field of a message; those without a plain value are skipped."""
    found: list[tuple[str, str]] = []
    for number, pair in _messages(data):
        if number != field:
            continue
        key, text = "", None
        for part, value in _messages(pair):
            if part == 1:
                key = _text(value)
            elif part == 2:
                text = _any_value(value)
        if key and text is not None and len(found) < _MOST_ATTRIBUTES:
            found.append((key, text))
    return tuple(found)


def _any_value(data: memoryview) -> str | None:
    for number, value in _fields(data):
        if number == 1 and isinstance(value, memoryview):
            return _text(value)
        if number == 2:
            return "true" if value else "false"
        if number == 3 and isinstance(value, int):
            return str(value - (1 << 64) if value >> 63 else value)
        if number == 4:
            return repr(_unpacked(_DOUBLE, value))
    return None


# -- the wire format of protobuf -------------------------------------------------------------------------------


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields that are messages, texts or bytes."""
    return ((number, value) for number, value in _fields(data) if isinstance(value, memoryview))


def _fields(data: memoryview) -> Iterator[_Field]:
    position, end = 0, len(data)
    while position < end:
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
