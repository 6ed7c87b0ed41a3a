"""OTLP metrics: decoded and encoded as Google's protobuf does, and bad bytes are one kind of error."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import otlp
from ottla.protocol.otlp import FIELDS_AT_ONCE, OtlpError, Point, decode, encode
from ottla.protocol.wire import uvarint

FIELD = descriptor_pb2.FieldDescriptorProto
# The part of opentelemetry/proto/metrics/v1/metrics.proto that these tests need: message, fields.
SCHEMA: dict[str, list[tuple[int, str, Any]]] = {
    "AnyValue": [(1, "string_value", FIELD.TYPE_STRING), (2, "bool_value", FIELD.TYPE_BOOL),
                 (3, "int_value", FIELD.TYPE_INT64), (4, "double_value", FIELD.TYPE_DOUBLE),
                 (7, "bytes_value", FIELD.TYPE_BYTES)],
    "KeyValue": [(1, "key", FIELD.TYPE_STRING), (2, "value", "AnyValue")],
    "Resource": [(1, "attributes", ["KeyValue"])],
    "NumberDataPoint": [(7, "attributes", ["KeyValue"]), (2, "start_time_unix_nano", FIELD.TYPE_FIXED64),
                        (3, "time_unix_nano", FIELD.TYPE_FIXED64), (4, "as_double", FIELD.TYPE_DOUBLE),
                        (6, "as_int", FIELD.TYPE_SFIXED64), (8, "flags", FIELD.TYPE_UINT32)],
    "HistogramDataPoint": [(9, "attributes", ["KeyValue"]), (4, "count", FIELD.TYPE_FIXED64),
                           (5, "sum", FIELD.TYPE_DOUBLE), (6, "bucket_counts", [FIELD.TYPE_FIXED64])],
    "Gauge": [(1, "data_points", ["NumberDataPoint"])],
    "Sum": [(1, "data_points", ["NumberDataPoint"]), (2, "aggregation_temporality", FIELD.TYPE_INT32),
            (3, "is_monotonic", FIELD.TYPE_BOOL)],
    "Histogram": [(1, "data_points", ["HistogramDataPoint"]), (2, "aggregation_temporality", FIELD.TYPE_INT32)],
    "Metric": [(1, "name", FIELD.TYPE_STRING), (2, "description", FIELD.TYPE_STRING), (3, "unit", FIELD.TYPE_STRING),
               (5, "gauge", "Gauge"), (7, "sum", "Sum"), (9, "histogram", "Histogram")],
    "ScopeMetrics": [(2, "metrics", ["Metric"])],
    "ResourceMetrics": [(1, "resource", "Resource"), (2, "scope_metrics", ["ScopeMetrics"])],
    "MetricsData": [(1, "resource_metrics", ["ResourceMetrics"])],
}  # fmt: skip


def messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in fields:
            of = kind[0] if isinstance(kind, list) else kind
            field = message.field.add(name=field_name, number=number)
            field.label = FIELD.LABEL_REPEATED if isinstance(kind, list) else FIELD.LABEL_OPTIONAL
            field.type = FIELD.TYPE_MESSAGE if isinstance(of, str) else of
            if isinstance(of, str):
                field.type_name = f".otlp.{of}"
            elif field_name.startswith("as_") or field_name.endswith("_value"):
                # Values with presence, which the real schema has in a `oneof`.
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field_name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"otlp.{name}")) for name in SCHEMA}


OTLP = messages()


def decoded(data: bytes) -> list[Point]:
    return [point for point in decode(data) if point is not None]


def pairs(found: Any) -> list[tuple[str, str]]:
    return [(each.key, each.value.string_value) for each in found]


def test_encoded_metrics_are_read_by_protobuf() -> None:
    points = [
        Point("org.apache.kafka.producer.connection.creation.total", 3, is_counter=True),
        Point("org.apache.kafka.producer.node.request.latency.avg", 1.5, (("node_id", "1"),)),
        Point("long", 2, (("text", "ä" * 300),), is_counter=True, is_delta=True),
    ]
    data = OTLP["MetricsData"].FromString(encode(points, {"client_rack": "r"}, 5, 7))
    (resource,) = data.resource_metrics
    assert pairs(resource.resource.attributes) == [("client_rack", "r")]
    total, latency, long = resource.scope_metrics[0].metrics
    assert (total.name, total.sum.is_monotonic, total.sum.aggregation_temporality) == (points[0].name, True, 2)
    (point,) = total.sum.data_points
    assert (point.as_double, point.start_time_unix_nano, point.time_unix_nano) == (3.0, 5, 7)
    assert (latency.name, latency.gauge.data_points[0].as_double) == (points[1].name, 1.5)
    assert pairs(latency.gauge.data_points[0].attributes) == [("node_id", "1")]
    assert long.sum.aggregation_temporality == 1
    assert pairs(long.sum.data_points[0].attributes) == [("text", "ä" * 300)]


def test_metrics_of_protobuf_are_decoded() -> None:
    data = OTLP["MetricsData"]()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="group_id").value.string_value = "g"
    scope = resource.scope_metrics.add()
    gauge = scope.metrics.add(name="g", description="ignored", unit="ms").gauge.data_points.add(as_int=-5, flags=1)
    gauge.attributes.add(key="yes").value.bool_value = True
    gauge.attributes.add(key="less").value.int_value = -(1 << 62)
    gauge.attributes.add(key="half").value.double_value = 0.5
    gauge.attributes.add(key="bytes").value.bytes_value = b"skipped"
    total = scope.metrics.add(name="s").sum
    total.data_points.add(as_double=2.5)
    total.data_points.add()
    total.is_monotonic, total.aggregation_temporality = True, 1
    histogram = scope.metrics.add(name="h").histogram
    histogram.data_points.add(count=4, sum=10.5, bucket_counts=[1, 3])
    histogram.aggregation_temporality = 2
    group = ("group_id", "g")
    assert decoded(data.SerializeToString()) == [
        Point("g", -5, (group, ("yes", "true"), ("less", str(-(1 << 62))), ("half", "0.5"))),
        Point("s", 2.5, (group,), is_counter=True, is_delta=True),
        Point("h.count", 4, (group,), is_counter=True),
        Point("h.sum", 10.5, (group,), is_counter=True),
    ]


TEXTS = st.text(max_size=20)
POINTS = st.builds(
    Point,
    TEXTS,
    st.floats(allow_nan=False),
    st.lists(st.tuples(st.text(min_size=1, max_size=9), TEXTS), max_size=3).map(tuple),
    st.booleans(),
    st.just(False),
)


@given(st.lists(POINTS, max_size=5))
def test_decoded_points_are_the_encoded_ones(points: list[Point]) -> None:
    assert decoded(encode(points, {}, 1, 2)) == points


@given(st.lists(POINTS, min_size=1, max_size=3), st.data())
def test_corrupt_bytes_are_an_otlp_error(points: list[Point], data: st.DataObject) -> None:
    encoded = bytearray(encode(points, {"a": "b"}, 1, 2))
    for position in data.draw(st.lists(st.integers(0, len(encoded) - 1), max_size=4)):
        encoded[position] = data.draw(st.integers(0, 255))
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    with suppress(OtlpError):
        decoded(bytes(cut))


@given(st.binary(max_size=60))
def test_any_bytes_are_metrics_or_an_otlp_error(data: bytes) -> None:
    with suppress(OtlpError):
        decoded(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x0a\x05ab", "a field of 5 bytes, where 2 are left"),
        (b"\x0b", "unknown wire type 3"),
        (b"\xff" * 11, "a varint does not end"),
        (b"\x0a", "a varint does not end"),
    ],
)
def test_error_says_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(OtlpError, match=problem):
        decoded(data)


@pytest.mark.parametrize(
    "path",
    [(), (1,), (1, 1), (1, 2), (1, 2, 2), (1, 2, 2, 5), (1, 2, 2, 5, 1), (1, 2, 2, 5, 1, 7), (1, 1, 1, 2)],
    ids=str,
)
def test_fields_are_bounded_and_yield_without_memory(path: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty unknown fields inside one message for each number of the path. A list of them would take megabytes."""
    most = 20_000
    monkeypatch.setattr(otlp, "MOST_FIELDS", most)
    data = b"\x7a\x00" * (most + 1)
    for field in reversed(path):
        data = bytes((field << 3 | 2,)) + uvarint(len(data)) + data
    yielded: list[Point | None] = []
    tracemalloc.start()
    try:
        with pytest.raises(OtlpError, match=f"more than {most} fields"):
            yielded.extend(decode(data))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    # A list that is extended keeps what it got before the error.
    assert set(yielded) == {None}
    assert len(yielded) >= most // FIELDS_AT_ONCE - 1


def test_long_name_is_not_copied_for_each_point() -> None:
    assert [point.name for point in decoded(encode([Point("n" * 1_001, 1), Point("n" * 1_000, 1)], {}, 1, 2))] == [
        "",
        "n" * 1_000,
    ]
