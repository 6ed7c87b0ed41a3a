"""Markers: retries, deleted partitions, restarts, and the end of the transaction."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import MarkersWritten, TransactionConfig
from ottla.coordinators.transaction.states import State
from tests.simulation.world.transactions import Producer, TransactionDriver

from .support import state_of

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


@pytest.fixture
def producer() -> Producer:
    producer = Producer(TransactionDriver())
    producer.init()
    producer.add(A0, A1, B0)
    return producer


def test_only_missing_markers_are_written_again_after_a_growing_pause(producer: Producer) -> None:
    driver = producer.driver
    driver.marker_errors = {A1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    producer.commit()
    assert state_of(driver) is State.PREPARE_COMMIT
    times = []
    for _ in range(10):
        before = len(driver.markers)
        while len(driver.markers) == before:
            driver.advance(10)
        times.append(driver.now_ms)
    assert {marker.partitions for marker in driver.markers[1:]} == {(A1,)}
    pauses = [after - before for before, after in zip([0, *times], times, strict=False)]
    assert pauses == [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
    driver.marker_errors = {}
    driver.advance(5_000)
    assert state_of(driver) is State.COMPLETE_COMMIT
    assert "Sending t's transaction marker for partition a-1 has failed with error NOT_LEADER_OR_FOLLOWER" in (
        "".join(driver.log_lines)
    )


@pytest.mark.parametrize(
    "error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_partition_that_cannot_be_written_now_keeps_the_transaction_undone(
    producer: Producer, error: ErrorCode
) -> None:
    driver = producer.driver
    driver.marker_errors = {B0: error}
    producer.abort()
    driver.advance(60_000)
    assert state_of(driver) is State.PREPARE_ABORT
    assert producer.add(A0) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_partition_without_an_open_transaction_is_done(producer: Producer, error: ErrorCode) -> None:
    producer.driver.marker_errors = {B0: error}
    producer.commit()
    assert state_of(producer.driver) is State.COMPLETE_COMMIT


def test_later_coordinator_takes_over(producer: Producer) -> None:
    driver = producer.driver
    driver.marker_errors = {B0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    producer.commit()
    driver.advance(60_000)
    assert (state_of(driver), len(driver.markers)) == (State.PREPARE_COMMIT, 1)


def test_partition_without_an_outcome_is_retried(producer: Producer) -> None:
    driver = producer.driver
    driver.holds_markers = True
    producer.commit()
    (effect,) = driver.held
    driver.held.clear()
    driver.obey(driver.shard.handle_markers(MarkersWritten(effect.id, {A0: ErrorCode.NONE}), driver.now()))
    driver.holds_markers = False
    driver.advance(50)
    assert driver.markers[-1].partitions == (A1, B0)
    assert state_of(driver) is State.COMPLETE_COMMIT


def test_outcome_that_is_reported_twice_counts_once(producer: Producer) -> None:
    driver = producer.driver
    producer.commit()
    producer.add(A0)
    results = dict.fromkeys((A0, A1, B0), ErrorCode.NONE)
    assert driver.shard.handle_markers(MarkersWritten(driver.markers[0].id, results), driver.now()) == []
    assert state_of(driver) is State.ONGOING


def test_completion_is_appended_again_after_a_failure(producer: Producer) -> None:
    driver = producer.driver
    driver.holds_markers = True
    producer.commit()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.release()
    driver.advance(1_000)
    assert state_of(driver) is State.PREPARE_COMMIT
    driver.append_error = ErrorCode.NONE
    driver.advance(5_000)
    assert (state_of(driver), len(driver.markers)) == (State.COMPLETE_COMMIT, 1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", [0, 2])
def test_restart_writes_all_markers_again(commit: bool, level: int) -> None:
    driver = TransactionDriver(level=level)
    producer = Producer(driver, version=2 if level else 1)
    producer.init()
    producer.add(A0, B0)
    driver.marker_errors = {B0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    producer.end(commit=commit)
    driver.marker_errors = {}
    driver.restart()
    driver.advance(0)
    first, second = driver.markers
    assert (second.partitions, second.commit) == ((A0, B0), commit)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch)
    assert (first.coordinator_epoch, second.coordinator_epoch) == (0, 1)
    assert state_of(driver) is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_pause_is_configured() -> None:
    driver = TransactionDriver(TransactionConfig(marker_retry_ms=7, max_marker_retry_ms=9))
    producer = Producer(driver)
    producer.init()
    producer.add(A0)
    driver.marker_errors = {A0: ErrorCode.REQUEST_TIMED_OUT}
    producer.commit()
    for expected in (7, 9, 9):
        assert driver.shard.next_timer_ms() == driver.now_ms + expected
        driver.advance(expected)
