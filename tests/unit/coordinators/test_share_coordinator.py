"""The share coordinator: its records, the requests that it fences, and the pruning of its log. KIP-932, KIP-1226."""

from __future__ import annotations

from dataclasses import replace

from ottla.common.errors import ErrorCode
from ottla.coordinators.share.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    Result,
    ShareKey,
    TopicsDeleted,
    WriteState,
)
from ottla.coordinators.share.shard import MOST_BATCHES, MOST_BATCHES_IN_WRITE, ShareCoordinatorConfig
from ottla.coordinators.share.state_batches import StateBatch
from ottla.protocol.share_records import ShareSnapshotValue, decode_record
from tests.drivers.shares import ShareCoordinatorDriver

TOPIC = bytes(15) + b"\x07"
KEY = ShareKey("g", TOPIC, 0)
AVAILABLE, ACKNOWLEDGED = 0, 2


def initialized(start_offset: int = 0, **config: int) -> ShareCoordinatorDriver:
    driver = ShareCoordinatorDriver(ShareCoordinatorConfig(**config))
    assert driver.ask(InitializeState(KEY, 1, start_offset)) == Result()
    return driver


def write(first: int, last: int, *, leader_epoch: int = 0, state_epoch: int = 1, start: int = -1) -> WriteState:
    batches = (StateBatch(first, last, ACKNOWLEDGED, 1),)
    return WriteState(KEY, state_epoch, leader_epoch, start, last - first + 1, batches)


def snapshots(driver: ShareCoordinatorDriver) -> int:
    decoded = [decode_record(key, value) for key, value in driver.log.values()]
    return sum(1 for row in decoded if row is not None and isinstance(row[1], ShareSnapshotValue))


def test_what_was_written_is_read_after_a_restart() -> None:
    driver = initialized(start_offset=10)
    assert driver.ask(write(10, 19)) == Result()
    assert driver.ask(write(25, 29, start=20)) == Result()
    driver.restart()
    result = driver.ask(ReadState(KEY, 0))
    assert (result.start_offset, result.state_epoch, result.delivery_complete_count) == (20, 1, 5)
    assert result.batches == (StateBatch(25, 29, ACKNOWLEDGED, 1),)


def test_uninitialized_share_partition_is_refused() -> None:
    driver = ShareCoordinatorDriver()
    assert driver.ask(write(0, 1)).error is ErrorCode.INVALID_REQUEST
    assert driver.ask(ReadState(KEY, 0)).error is ErrorCode.INVALID_REQUEST
    assert driver.ask(ReadSummary(KEY)) == Result(start_offset=-1)
    assert driver.ask(DeleteState(KEY)) == Result()
    assert not driver.log


def test_earlier_leaders_and_state_epochs_are_fenced() -> None:
    driver = initialized()
    assert driver.ask(ReadState(KEY, 3)).error is ErrorCode.NONE
    driver.restart()
    assert driver.ask(write(0, 1, leader_epoch=2)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert driver.ask(ReadState(KEY, 2)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert driver.ask(write(0, 1, leader_epoch=3)).error is ErrorCode.NONE
    assert driver.ask(InitializeState(KEY, 2, 50)).error is ErrorCode.NONE
    driver.restart()
    assert driver.ask(write(2, 3, leader_epoch=3)).error is ErrorCode.FENCED_STATE_EPOCH
    assert driver.ask(InitializeState(KEY, 1, 0)).error is ErrorCode.FENCED_STATE_EPOCH
    assert driver.ask(ReadSummary(KEY)).start_offset == 50


def test_state_that_exists_survives_a_repeated_creation() -> None:
    driver = initialized(start_offset=5)
    assert driver.ask(write(5, 9)) == Result()
    written = len(driver.log)
    again = InitializeState(KEY, 2, -1, keeps_existing=True)
    assert driver.ask(again) == Result()
    assert len(driver.log) == written
    assert driver.ask(replace(again, topic_exists=False)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert driver.ask(ReadState(KEY, 0)).batches == (StateBatch(5, 9, ACKNOWLEDGED, 1),)
    assert driver.ask(DeleteState(KEY)) == Result()
    assert driver.ask(again) == Result()
    assert driver.ask(ReadSummary(KEY)).start_offset == -1


def test_unknown_topics_and_negative_partitions_are_refused() -> None:
    driver = initialized()
    negative = KEY._replace(partition=-1)
    for request in (InitializeState(KEY, 1, 0), ReadState(KEY, 0), ReadSummary(KEY), DeleteState(KEY), write(0, 1)):
        assert driver.ask(replace(request, topic_exists=False)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert driver.ask(replace(request, key=negative)).error is ErrorCode.INVALID_REQUEST


def test_read_of_the_same_leader_epoch_writes_nothing() -> None:
    driver = initialized()
    driver.ask(ReadState(KEY, 1))
    written = len(driver.log)
    driver.ask(ReadState(KEY, 1))
    assert len(driver.log) == written


def test_failed_append_changes_nothing() -> None:
    driver = initialized()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert driver.ask(write(0, 9)).error is ErrorCode.NOT_COORDINATOR
    driver.append_error = ErrorCode.NONE
    assert driver.ask(ReadState(KEY, 0)).batches == ()


def test_snapshot_follows_after_the_configured_number_of_updates() -> None:
    driver = initialized(update_records_per_snapshot=3)
    for offset in range(8):
        driver.ask(write(offset, offset))
    assert snapshots(driver) == 1 + 2
    driver.restart()
    assert driver.ask(ReadState(KEY, 0)).batches == (StateBatch(0, 7, ACKNOWLEDGED, 1),)


def test_log_is_pruned_below_the_earliest_snapshot_that_counts() -> None:
    driver = initialized(update_records_per_snapshot=3)
    other = KEY._replace(partition=1)
    driver.ask(InitializeState(other, 1, 0))
    for offset in range(20):
        driver.ask(write(offset, offset))
    driver.advance(300_000)
    # The other share partition was not written: it gets a snapshot first.
    assert 0 in driver.log or min(driver.log) == 1
    driver.advance(600_000)
    assert len(driver.log) < 6
    expected = dict(driver.shard.states)
    driver.restart()
    assert {key: state.batches for key, state in driver.shard.states.items()} == {
        key: state.batches for key, state in expected.items()
    }
    driver.advance(3_600_000)
    assert len(driver.log) < 6, "nothing is written for share partitions that do not change"


def test_states_of_deleted_topics_and_groups_are_deleted() -> None:
    driver = initialized()
    other = ShareKey("g", bytes(15) + b"\x08", 0)
    driver.ask(InitializeState(other, 1, 0))
    driver.ask(TopicsDeleted(frozenset({TOPIC})))
    assert set(driver.shard.states) == {other}
    driver.ask(DeleteState(other))
    driver.restart()
    assert not driver.shard.states
    driver.advance(300_000)
    assert len(driver.log) == 1
    assert driver.ask(ReadSummary(KEY)).start_offset == -1


def test_records_of_unknown_types_are_counted_and_skipped() -> None:
    driver = initialized()
    driver.shard.replay(b"\x00\x63key", b"\x00\x00", 9)
    assert driver.shard.skipped_records == 1


def test_coordinator_key_has_the_format_of_kafka() -> None:
    assert ShareKey("g", bytes.fromhex("74e1b2a44fd44a5ca6e32a3b9f8c1d10"), 3).coordinator_key == (
        "g:dOGypE_USlym4yo7n4wdEA:3"
    )


def test_number_of_stored_batches_is_limited() -> None:
    """A snapshot of more batches would not fit into a record."""
    driver = initialized()
    for start in range(0, MOST_BATCHES, MOST_BATCHES_IN_WRITE):
        batches = tuple(StateBatch(2 * o, 2 * o, ACKNOWLEDGED, 1) for o in range(start, start + MOST_BATCHES_IN_WRITE))
        assert driver.ask(replace(write(0, 0), batches=batches)) == Result()
    assert driver.ask(write(1, 1)).error is ErrorCode.INVALID_REQUEST
    assert driver.ask(replace(write(1, 1), batches=())) == Result()
    assert len(driver.replayed().states[KEY].batches) == MOST_BATCHES
