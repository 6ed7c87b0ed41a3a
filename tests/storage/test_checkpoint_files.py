"""Offset checkpoints and `partition.metadata`: what is read after a write, and after the file was corrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.ids import ZERO_UUID, TopicPartition
from ottla.log import Files
from ottla.log.checkpoints import (
    COPIES,
    LOG_STARTS,
    PARTITION_METADATA,
    CorruptCheckpointError,
    read_offsets,
    read_topic_id,
    write_offsets,
    write_topic_id,
)

TOPIC_ID = bytes(range(1, 17))
OFFSETS = {TopicPartition("a", 0): 17, TopicPartition("a", 12): 2**62, TopicPartition("b.c_d-e", 3): 0}


@settings(max_examples=20)
@given(
    offsets=st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a", "a-1", "b.c"]), st.integers(0, 99)), st.integers(0, 2**63 - 1)
    ),
    copies=st.sampled_from([1, COPIES]),
)
def test_offsets_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[TopicPartition, int], copies: int
) -> None:
    directory = str(tmp_path_factory.mktemp("offsets"))
    write_offsets(Files(), directory, LOG_STARTS, offsets, copies=copies)
    assert read_offsets(Files(), directory, LOG_STARTS) == offsets


def test_missing_and_empty_checkpoints_have_no_offsets(tmp_path: Path) -> None:
    assert read_offsets(Files(), str(tmp_path), LOG_STARTS) == {}
    (tmp_path / LOG_STARTS).write_bytes(b"")
    assert read_offsets(Files(), str(tmp_path), LOG_STARTS) == {}


def test_no_changed_byte_changes_an_offset_that_has_copies(tmp_path: Path) -> None:
    write_offsets(Files(), str(tmp_path), LOG_STARTS, OFFSETS, copies=COPIES)
    path = tmp_path / LOG_STARTS
    sound = path.read_bytes()
    for position, byte in enumerate(sound):
        for changed in {byte ^ 1, byte ^ 0x80, 0x30, 0x0A} - {byte}:
            path.write_bytes(sound[:position] + bytes([changed]) + sound[position + 1 :])
            assert read_offsets(Files(), str(tmp_path), LOG_STARTS) == OFFSETS, (position, changed)


@pytest.mark.parametrize("lines", range(1, 4))
def test_lost_lines_at_the_end_leave_the_majority(tmp_path: Path, lines: int) -> None:
    write_offsets(Files(), str(tmp_path), LOG_STARTS, OFFSETS, copies=COPIES)
    path = tmp_path / LOG_STARTS
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[: -1 - lines]))
    assert read_offsets(Files(), str(tmp_path), LOG_STARTS) == OFFSETS


@pytest.mark.parametrize(
    "content",
    ["x\n1\na 0 5\n", "1\n1\na 0 5\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "0\n", "0\n1\na b 0 5\n"],
)
def test_checkpoint_without_copies_is_not_guessed(tmp_path: Path, content: str) -> None:
    (tmp_path / LOG_STARTS).write_text(content)
    with pytest.raises(CorruptCheckpointError, match=LOG_STARTS):
        read_offsets(Files(), str(tmp_path), LOG_STARTS)


def test_topic_id_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_topic_id(Files(), str(tmp_path)) == ZERO_UUID
    write_topic_id(Files(), str(tmp_path), TOPIC_ID)
    assert read_topic_id(Files(), str(tmp_path)) == TOPIC_ID
    assert [path.name for path in tmp_path.iterdir()] == [PARTITION_METADATA]


def test_changed_or_torn_topic_id_is_never_another_one(tmp_path: Path) -> None:
    """With another id, the partition would count as one of a deleted topic."""
    write_topic_id(Files(), str(tmp_path), TOPIC_ID)
    path = tmp_path / PARTITION_METADATA
    sound = path.read_bytes()
    text = sound.index(b"\ncrc32c")
    for position in range(text):
        path.write_bytes(sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :])
        assert read_topic_id(Files(), str(tmp_path)) == ZERO_UUID, position
    for size in range(text):
        path.write_bytes(sound[:size])
        assert read_topic_id(Files(), str(tmp_path)) == ZERO_UUID, size


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: x\n", b"\xff\xfe"])
def test_file_without_a_topic_id_is_skipped(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PARTITION_METADATA).write_bytes(content)
    assert read_topic_id(Files(), str(tmp_path)) == ZERO_UUID


def test_topic_id_of_stock_kafka_has_no_checksum(tmp_path: Path) -> None:
    write_topic_id(Files(), str(tmp_path), TOPIC_ID)
    path = tmp_path / PARTITION_METADATA
    path.write_bytes(path.read_bytes().partition(b"\ncrc32c")[0] + b"\n")
    assert read_topic_id(Files(), str(tmp_path)) == TOPIC_ID
