"""Serializers and deserializers given by name or as functions."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from confluent_kafka import serialization

from ottla.clients.consumer.deserializers import Deserializers, deserializer
from ottla.clients.consumer.record import Record, record_class
from ottla.clients.errors import ConfigurationError, SerializationFailed
from ottla.clients.formats import FORMATS
from ottla.clients.producer.serializers import serialize, serializer_for

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
# The bytes that Kafka's serializers return.
SAMPLES: list[tuple[str, object, bytes]] = [
    ("string", "Ωmega", "Ωmega".encode()),
    ("org.apache.kafka.common.serialization.StringSerializer", "a", b"a"),
    ("int16", -2, b"\xff\xfe"),
    ("ShortSerializer", 258, b"\x01\x02"),
    ("int32", -2, b"\xff\xff\xff\xfe"),
    ("IntegerSerializer", 7, b"\0\0\0\7"),
    ("int64", 2**40, b"\0\0\1\0\0\0\0\0"),
    ("long", -1, b"\xff" * 8),
    ("float", 1.5, b"\x3f\xc0\0\0"),
    ("double", -0.5, b"\xbf\xe0\0\0\0\0\0\0"),
    ("uuid", ID, b"00112233-4455-6677-8899-aabbccddeeff"),
    ("boolean", True, b"\1"),
    ("bytes", b"\0x", b"\0x"),
    ("json", {"a": [1, "é"]}, '{"a":[1,"é"]}'.encode()),
]


@pytest.mark.parametrize(("name", "value", "data"), SAMPLES, ids=[row[0] for row in SAMPLES])
def test_formats_equal_kafkas_serializers(name: str, value: object, data: bytes) -> None:
    made = serializer_for("value.serializer", name)
    assert made is not None
    assert serialize(made, "value", "t", value) == data
    read = deserializer(name.replace("Serializer", "Deserializer"), "value.deserializer")
    assert (data if read is None else read(data)) == value


def test_numbers_and_strings_equal_confluents_serializers() -> None:
    theirs: list[tuple[str, Any, object]] = [
        ("string", serialization.StringSerializer("utf_8"), "Ωmega"),
        ("int32", serialization.IntegerSerializer(), -123_456),
        ("double", serialization.DoubleSerializer(), 1e-300),
    ]
    for name, their, value in theirs:
        assert FORMATS[name].serialize(value) == their(value)


@pytest.mark.parametrize(
    ("name", "data"),
    [("int32", b"\0\0\1"), ("int64", b""), ("double", b"1"), ("uuid", b"x"), ("string", b"\xff"), ("boolean", b"\2")],
)
def test_bytes_of_another_format_are_an_error_with_offset(name: str, data: bytes) -> None:
    made, failed = Deserializers(None, deserializer(name, "value.deserializer")).apply([record(0, data)])
    assert made == []
    assert failed is not None
    assert (failed.topic, failed.partition, failed.offset, failed.what) == ("t", 3, 0, "value")
    assert failed.record == record(0, data)


@pytest.mark.parametrize(("name", "value"), [("int32", 2**31), ("int64", "1"), ("uuid", "x"), ("string", b"x")])
def test_value_of_another_type_is_rejected(name: str, value: object) -> None:
    made = serializer_for("value.serializer", name)
    assert made is not None
    with pytest.raises(SerializationFailed, match="value for t"):
        serialize(made, "value", "t", value)


def record(offset: int, value: bytes | None) -> Record:
    return record_class("t", 3)(offset, 0, None, value, [("h", b"1")])


def test_functions_with_topic_and_headers_parameters_receive_them() -> None:
    def all_of_it(data: bytes, topic: str, headers: Any) -> object:
        return data, topic, headers

    def some(data: bytes, *, topic: str) -> object:
        return data, topic

    for function, expected in (
        (all_of_it, (b"v", "t", [("h", b"1")])),
        (some, (b"v", "t")),
        (bytes.upper, b"V"),
        (int, 5),
    ):
        data = b"5" if function is int else b"v"
        made, failed = Deserializers(None, deserializer(function, "value.deserializer")).apply([record(0, data)])
        assert failed is None
        assert made[0].value == expected

    def write(value: str, topic: str) -> bytes:
        return f"{topic}:{value}".encode()

    serializer = serializer_for("value.serializer", write)
    assert serializer is not None
    assert serialize(serializer, "value", "t", "x") == b"t:x"


def test_tombstones_and_missing_keys_become_none_in_every_format() -> None:
    for name in FORMATS:
        made, failed = Deserializers(deserializer(name, "k"), deserializer(name, "v")).apply([record(0, None)])
        assert failed is None
        assert (made[0].key, made[0].value) == (None, None)


def test_invalid_values_are_skipped_by_setting(caplog: pytest.LogCaptureFixture) -> None:
    records = [record(i, value) for i, value in enumerate([b"1", b"x", None, b"4"])]
    made, failed = Deserializers(None, deserializer("json", "v"), skip=True).apply(records)
    assert failed is None
    assert [(r.offset, r.value) for r in made] == [(0, 1), (2, None), (3, 4)]
    (logged,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "offset 1" in logged.getMessage()


@pytest.mark.parametrize("given", ["int7", 5])
def test_unknown_format_error_lists_the_known_formats(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"value\.deserializer is .*int32"):
        deserializer(given, "value.deserializer")
    with pytest.raises(ConfigurationError, match="int64"):
        serializer_for("value.serializer", given)
