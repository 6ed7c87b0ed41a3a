"""A reset removes a checkpoint, writes the new start and moves committed offsets; a repeated reset completes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients import Admin, Producer, TopicPartition
from ottla.clients.admin import OffsetSpec
from ottla.clients.errors import ClientError, GroupNotFound
from ottla.streams.checkpoint_files import PROGRAM_FILE, START_FILE, StoredProgram, dump_starts, load_starts
from ottla.streams.errors import StreamsError
from ottla.streams.resetting import (
    Reset,
    execute,
    find_starts,
    local_path,
    read_program,
)

if TYPE_CHECKING:
    from ottla.testing.process import ProcessBroker
    from ottla.testing.running import ThreadBroker

TOPIC = "reset-orders"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
FIRST_MS = 1_700_000_000_000
PROGRAM = StoredProgram(4, {"orders": TOPIC}, {"shop.balance": ["aggregate by customer"]})


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [
        ("/data/shop", "/data/shop"),
        ("data/shop", "data/shop"),
        ("./a:b/shop", "./a:b/shop"),
        ("file:/data/shop", "/data/shop"),
        ("file:///data/shop", "/data/shop"),
    ],
)
def test_checkpoint_of_this_machine_has_a_path(checkpoint: str, path: str) -> None:
    assert local_path(checkpoint) == Path(path)


@pytest.mark.parametrize("checkpoint", ["s3a://bucket/shop", "hdfs:/shop"])
def test_checkpoint_of_another_file_system_is_refused_with_its_name(checkpoint: str) -> None:
    with pytest.raises(StreamsError, match=f"{checkpoint} is not in a directory of this machine"):
        local_path(checkpoint)


def test_program_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    assert read_program(tmp_path) is None
    assert read_program(tmp_path / "missing") is None
    (tmp_path / PROGRAM_FILE).write_text(PROGRAM.dumps())
    assert read_program(tmp_path) == PROGRAM


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"shuffle_partitions": null, "sources": {}, "operators": {}, "version": 1}'],
)
def test_unreadable_program_is_an_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / PROGRAM_FILE
    path.write_bytes(content)
    with pytest.raises(StreamsError, match=PROGRAM_FILE):
        read_program(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(StreamsError, match=PROGRAM_FILE):
        read_program(tmp_path)


STARTS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 20)), st.integers(0, 2**63 - 1)
)


@settings(max_examples=30)
@given(STARTS)
def test_starts_are_read_as_they_were_written(starts: dict[TopicPartition, int]) -> None:
    read = load_starts(dump_starts(starts))
    assert {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in read.items()
        for partition, offset in offsets.items()
    } == starts


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"offsets": 1}', '{"offsets": {"a": [1]}}', '{"offsets": {"a": {"x": 1}}}',
     '{"offsets": {"a": {"0": null}}}', '{"offsets": {"a": {"0": "end"}}}'],
)  # fmt: skip
def test_unreadable_starts_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="the starting offsets are unreadable"):
        load_starts(text)


# -- with a broker -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def admin(ottla_session_broker: ThreadBroker | ProcessBroker) -> Iterator[Admin]:
    """An admin of a broker with a topic: 5 records in the first partition, a second apart, and 2 in the second."""
    with (
        Admin(ottla_session_broker.bootstrap) as made,
        Producer(bootstrap_servers=ottla_session_broker.bootstrap) as producer,
    ):
        made.create_topic(TOPIC, partitions=2, replication_factor=1)
        for partition, count in ((0, 5), (1, 2)):
            for number in range(count):
                sent = producer.send(TOPIC, b"x", partition=partition, timestamp_ms=FIRST_MS + number * 1_000)
                sent.result(10)
        yield made


@pytest.mark.parametrize(
    ("at", "offsets"),
    [
        (OffsetSpec.EARLIEST, (0, 0)),
        (OffsetSpec.LATEST, (5, 2)),
        (FIRST_MS + 1, (1, 1)),
        # The second partition has no record since then: its end.
        (FIRST_MS + 3_000, (3, 2)),
        (FIRST_MS + 60_000, (5, 2)),
    ],
)
def test_start_at_a_time_without_later_records_is_the_end(
    admin: Admin, at: OffsetSpec | int, offsets: tuple[int, int]
) -> None:
    assert find_starts(admin, [TOPIC], at) == dict(zip(PARTITIONS, offsets, strict=True))


def with_checkpoint(directory: Path) -> Path:
    """A checkpoint with state, as a query leaves it."""
    checkpoint = directory / "shop"
    (checkpoint / "state").mkdir(parents=True)
    (checkpoint / "state" / "1.delta").write_bytes(b"rows")
    (checkpoint / PROGRAM_FILE).write_text(PROGRAM.dumps())
    return checkpoint


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    return {tp: row.offset for tp, row in admin.list_group_offsets(group, PARTITIONS).items()}


def test_reset_to_the_beginning_leaves_neither_checkpoint_nor_group(admin: Admin, tmp_path: Path) -> None:
    checkpoint = with_checkpoint(tmp_path)
    admin.alter_group_offsets("to-beginning", {PARTITIONS[0]: 4})
    execute(admin, Reset("shop", checkpoint, True, ["to-beginning", "never-existed"]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(GroupNotFound):
        admin.delete_group("to-beginning")


def test_reset_to_offsets_leaves_only_the_new_start(admin: Admin, tmp_path: Path) -> None:
    checkpoint = with_checkpoint(tmp_path)
    starts = {PARTITIONS[0]: 3, PARTITIONS[1]: 1}
    execute(admin, Reset("shop", checkpoint, True, ["to-offsets"], starts=starts))
    assert files(tmp_path) == [f"shop/{START_FILE}"]
    assert load_starts((checkpoint / START_FILE).read_text()) == {TOPIC: {"0": 3, "1": 1}}
    assert committed(admin, "to-offsets") == starts


def test_reset_without_a_checkpoint_creates_its_directory(admin: Admin, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "shop"
    execute(admin, Reset("shop", checkpoint, False, [], starts={PARTITIONS[0]: 3}))
    assert files(tmp_path) == [f"checkpoints/shop/{START_FILE}"]


@pytest.mark.parametrize("starts", [{}, {PARTITIONS[0]: 2}], ids=["beginning", "offsets"])
def test_reset_that_failed_halfway_is_completed_by_the_next_one(
    admin: Admin, tmp_path: Path, ottla_session_broker: ThreadBroker | ProcessBroker, starts: dict[TopicPartition, int]
) -> None:
    checkpoint = with_checkpoint(tmp_path)
    admin.alter_group_offsets("halfway", {PARTITIONS[0]: 4})
    closed = Admin(ottla_session_broker.bootstrap)
    closed.close()
    with pytest.raises(ClientError):
        execute(closed, Reset("shop", checkpoint, True, ["halfway"], starts=starts))
    # The old state is not used any more, although the reset is not complete.
    assert not (checkpoint / "state").exists()
    execute(admin, Reset("shop", checkpoint, checkpoint.exists(), ["halfway"], starts=starts))
    assert files(tmp_path) == ([f"shop/{START_FILE}"] if starts else [])
    assert not starts or committed(admin, "halfway") == starts
    assert list(tmp_path.iterdir()) == ([checkpoint] if starts else [])


def test_remains_of_an_interrupted_reset_do_not_disturb_the_next_one(admin: Admin, tmp_path: Path) -> None:
    checkpoint = with_checkpoint(tmp_path)
    for name in ("shop.deleted", "shop.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_bytes(b"old")
    execute(admin, Reset("shop", checkpoint, True, [], starts={PARTITIONS[1]: 1}))
    assert files(tmp_path) == [f"shop/{START_FILE}"]
