"""Names and ids: UUIDs as text, topic names, and Java's hash of a group's name."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import (
    INTERNAL_TOPICS,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    TopicPartition,
    by_topic,
    group_partition,
    java_string_hash,
    uuid_from_text,
    uuid_to_text,
    validate_topic_name,
)


@pytest.mark.parametrize(
    ("uuid", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw"),
        (b"\xff" * 16, "_____________________w"),
        (b"\xfb\xef\xbe" * 5 + b"\xfb", "--------------------" + "-w"),
    ],
)
def test_uuid_has_the_text_of_kafka(uuid: bytes, text: str) -> None:
    assert uuid_to_text(uuid) == text
    assert uuid_from_text(text) == uuid


@given(st.binary(min_size=16, max_size=16))
def test_uuid_is_read_from_its_text_with_and_without_padding(uuid: bytes) -> None:
    text = uuid_to_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid
    assert uuid_from_text(base64.urlsafe_b64encode(uuid).decode()) == uuid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA===",
        # Python's decoder skips characters outside the alphabet; Java's reports them.
        "AAAAAAAAAA AAAAAAAAAAAA",
        "AAAAAAAAAA!!!!AAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA\n",
        # The alphabet of plain base64.
        "+++++++++++++++++++++w",
        "/////////////////////w",
        "AAAAAAAAAAAAAAAAAAAAA\u00c4",
    ],
)
def test_text_that_is_not_a_uuid_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        uuid_from_text(text)


@given(st.text(max_size=30) | st.text("Aw_-+/= !", min_size=20, max_size=28))
def test_any_text_is_a_uuid_or_a_value_error(text: str) -> None:
    try:
        uuid = uuid_from_text(text)
    except ValueError:
        return
    assert len(uuid) == 16


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, *sorted(INTERNAL_TOPICS)])
def test_valid_topic_name_is_accepted(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        ("x" * 2000, f"the length of '{'x' * 1000}...' is longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("\u0661", "'\u0661' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ],
)
def test_invalid_topic_name_is_rejected_with_the_message_of_kafka(name: str, problem: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_name(name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert str(caught.value).endswith(f"Topic name is invalid: {problem}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("\u00e9", 233),
        # Two UTF-16 units: 0xD83D * 31 + 0xDE00.
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
        ("\ud83d", 0xD83D),
    ],
)
def test_hash_equals_the_hash_of_a_java_string(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@given(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="ascii")))
def test_hash_of_joined_text_follows_from_its_parts(first: str, second: str) -> None:
    whole = (java_string_hash(first) * pow(31, len(second), 1 << 32) + java_string_hash(second)) % (1 << 32)
    assert java_string_hash(first + second) % (1 << 32) == whole
    assert -(1 << 31) <= java_string_hash(first) < 1 << 31


@pytest.mark.parametrize(
    ("group", "partition"),
    # The absolute value of the smallest hash does not fit 32 bits: Kafka takes 0.
    [("polygenelubricants", 0), ("hello", 99162322 % 50), ("Aa", 2112 % 50), ("", 0)],
)
def test_group_is_stored_in_the_partition_of_its_hash(group: str, partition: int) -> None:
    assert group_partition(group, 50) == partition


def test_group_with_a_negative_hash_is_stored_in_the_partition_of_the_absolute_value() -> None:
    value = java_string_hash("billing")
    assert value < 0
    assert group_partition("billing", 50) == -value % 50


@given(st.text(max_size=20), st.integers(1, 100))
def test_partition_of_a_group_exists(group: str, partitions: int) -> None:
    assert 0 <= group_partition(group, partitions) < partitions
    assert group_partition(group, 1) == 0


def test_partitions_are_grouped_by_topic_in_order() -> None:
    partitions = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assert by_topic(partitions) == {"b": [2, 1], "a": [0]}
    assert list(by_topic(partitions)) == ["b", "a"]
    assert by_topic([]) == {}
    assert str(partitions[0]) == "b-2"
