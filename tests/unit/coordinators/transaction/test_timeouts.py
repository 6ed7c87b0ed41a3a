"""Transactions that time out, and ids that expire."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import TransactionConfig
from ottla.coordinators.transaction.expiry import MOST_KEY_BYTES, MOST_TOMBSTONES
from ottla.coordinators.transaction.states import State
from ottla.coordinators.transaction.timeouts import MOST_ABORTS
from tests.simulation.world.transactions import FIRST_PRODUCER_ID, Producer, TransactionDriver

from .support import set_epoch, state_of

A0 = ("a", 0)
HOUR_MS = 3_600_000
WEEK_MS = 604_800_000
# Expiry takes a week, in which there need be no checks of timeouts.
IDLE_CONFIG = TransactionConfig(abort_timed_out_interval_ms=WEEK_MS)


def opened(driver: TransactionDriver, transactional_id: str = "t", version: int = 2) -> Producer:
    producer = Producer(driver, transactional_id, version=version)
    producer.init()
    producer.add(A0)
    return producer


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transaction_that_is_open_for_too_long_is_aborted(level: int) -> None:
    driver = TransactionDriver(level=level)
    producer = opened(driver, version=1)
    driver.advance(59_999)
    assert state_of(driver) is State.ONGOING
    driver.advance(10_000)
    assert state_of(driver) is State.COMPLETE_ABORT
    (marker,) = driver.markers
    assert (marker.commit, marker.producer_epoch) == (False, 1)
    assert producer.commit() is ErrorCode.PRODUCER_FENCED
    assert producer.add(A0) is ErrorCode.PRODUCER_FENCED
    assert "Completed rollback of ongoing transaction for transactionalId t due to timeout" in driver.log_lines


def test_producer_of_version_2_continues_after_the_timeout_with_an_abort() -> None:
    driver = TransactionDriver()
    producer = opened(driver)
    driver.advance(70_000)
    assert producer.twin().commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.NONE
    assert producer.epoch == 1
    assert producer.add(A0) is ErrorCode.NONE


def test_time_counts_from_the_first_partition() -> None:
    driver = TransactionDriver()
    producer = opened(driver)
    for _ in range(5):
        driver.advance(10_000)
        producer.add(("a", driver.now_ms))
    driver.advance(20_000)
    assert state_of(driver) is State.COMPLETE_ABORT
    assert len(driver.markers[0].partitions) == 6


def test_next_transaction_has_its_own_time() -> None:
    driver = TransactionDriver()
    producer = opened(driver)
    driver.advance(50_000)
    producer.commit()
    producer.add(A0)
    driver.advance(50_000)
    assert state_of(driver) is State.ONGOING
    driver.advance(20_000)
    assert state_of(driver) is State.COMPLETE_ABORT


def test_time_continues_after_a_restart() -> None:
    driver = TransactionDriver()
    opened(driver)
    driver.advance(30_000)
    driver.restart()
    driver.advance(25_000)
    assert state_of(driver) is State.ONGOING
    driver.advance(20_000)
    assert state_of(driver) is State.COMPLETE_ABORT


@pytest.mark.parametrize("ahead_ms", [-10 * HOUR_MS, 10 * HOUR_MS])
def test_timeouts_do_not_follow_a_wall_clock_that_is_set(ahead_ms: int) -> None:
    driver = TransactionDriver()
    opened(driver)
    driver.wall_ahead_ms = ahead_ms
    driver.advance(50_000)
    assert state_of(driver) is State.ONGOING
    driver.advance(20_000)
    assert state_of(driver) is State.COMPLETE_ABORT


def test_wall_clock_that_was_set_back_before_a_restart_does_not_keep_a_transaction_open() -> None:
    driver = TransactionDriver()
    opened(driver)
    driver.wall_ahead_ms = -10 * HOUR_MS
    driver.restart()
    driver.advance(70_000)
    assert state_of(driver) is State.COMPLETE_ABORT


def test_failed_abort_is_repeated_at_the_next_check() -> None:
    driver = TransactionDriver()
    opened(driver)
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(70_000)
    assert state_of(driver) is State.ONGOING
    assert "failed due to error COORDINATOR_NOT_AVAILABLE" in driver.log_lines[-1]
    driver.append_error = ErrorCode.NONE
    driver.advance(10_000)
    assert state_of(driver) is State.COMPLETE_ABORT


def test_abort_of_an_exhausted_producer_waits_for_a_new_producer_id() -> None:
    driver = TransactionDriver()
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_766)
    producer.epoch = 32_766
    producer.add(A0)
    driver.allocation_error = ErrorCode.REQUEST_TIMED_OUT
    driver.advance(70_000)
    assert state_of(driver) is State.ONGOING
    driver.allocation_error = ErrorCode.NONE
    driver.holds_allocations = True
    driver.advance(30_000)
    driver.release()
    assert state_of(driver) is State.COMPLETE_ABORT
    assert driver.shard.transactions["t"].producer_id == FIRST_PRODUCER_ID + 1


def test_check_aborts_a_bounded_number_of_transactions() -> None:
    driver = TransactionDriver()
    driver.holds_markers = True
    names = [f"t{i}" for i in range(2 * MOST_ABORTS + 1)]
    for name in names:
        opened(driver, name)
    driver.now_ms = 100_000
    counts = []
    for _ in range(3):
        before = len(driver.markers)
        driver.now_ms = max(driver.now_ms, driver.shard.next_timer_ms() or 0)
        driver.obey(driver.shard.handle_timer(driver.now()))
        counts.append(len(driver.markers) - before)
    assert counts == [MOST_ABORTS, MOST_ABORTS, 1]
    assert driver.now_ms < 100_100


# -- expiry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["nothing", "commit", "abort"])
def test_unused_id_expires(end: str) -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    producer = Producer(driver)
    producer.init()
    if end != "nothing":
        producer.add(A0)
        producer.end(commit=end == "commit")
    driver.advance(WEEK_MS - 1)
    assert "t" in driver.shard.transactions
    driver.advance(HOUR_MS + 1)
    assert driver.shard.transactions == {}
    assert driver.log[-1][1] is None
    assert driver.replayed().transactions == {}
    assert producer.add(A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.init(names_epoch=True) is ErrorCode.NONE
    assert producer.identity == (FIRST_PRODUCER_ID + 1, 0)


def test_open_and_undecided_transactions_do_not_expire() -> None:
    config = TransactionConfig(id_expiration_ms=1_000, remove_expired_interval_ms=1_000)
    driver = TransactionDriver(config)
    opened(driver)
    driver.advance(30_000)
    assert state_of(driver) is State.ONGOING
    driver.marker_errors = {A0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    driver.advance(100_000)
    assert state_of(driver) is State.PREPARE_ABORT
    driver.marker_errors = {}
    driver.advance(5_000)
    assert driver.shard.transactions == {}


def test_used_id_does_not_expire() -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    producer = Producer(driver)
    producer.init()
    for _ in range(10):
        driver.advance(WEEK_MS // 2)
        assert producer.add(A0) is ErrorCode.NONE
        assert producer.commit() is ErrorCode.NONE


def test_expiry_continues_after_a_restart() -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    Producer(driver).init()
    driver.advance(WEEK_MS - HOUR_MS)
    driver.restart()
    driver.advance(2 * HOUR_MS)
    assert driver.shard.transactions == {}


def test_failed_tombstones_are_written_at_the_next_check() -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    producer = Producer(driver)
    producer.init()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    driver.advance(WEEK_MS + HOUR_MS)
    assert "t" in driver.shard.transactions
    driver.append_error = ErrorCode.NONE
    driver.advance(HOUR_MS)
    assert driver.shard.transactions == {}


def test_id_that_waits_for_a_producer_id_does_not_expire() -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_766)
    driver.advance(WEEK_MS - 1)
    driver.holds_allocations = True
    call = driver.send(producer.init_request(), 5)
    driver.advance(2 * HOUR_MS)
    driver.release()
    assert producer.initialized(driver.answers[call]) is ErrorCode.NONE
    driver.advance(2 * HOUR_MS)
    assert "t" in driver.shard.transactions


def test_wall_clock_that_is_wrong_for_a_short_time_does_not_expire_ids() -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    Producer(driver).init()
    driver.advance(HOUR_MS - 1)
    driver.wall_ahead_ms = 2 * WEEK_MS
    driver.advance(2)
    driver.wall_ahead_ms = 0
    driver.advance(2 * HOUR_MS)
    assert "t" in driver.shard.transactions


@pytest.mark.parametrize(("length", "expected"), [(5, MOST_TOMBSTONES), (30_000, MOST_KEY_BYTES // 30_000 + 1)])
def test_check_deletes_a_bounded_number_of_ids(length: int, expected: int) -> None:
    driver = TransactionDriver(IDLE_CONFIG)
    count = 2 * expected + 1
    for number in range(count):
        Producer(driver, f"{number:0{length}}").init()
    driver.now_ms = WEEK_MS + 1
    sizes = []
    while driver.shard.transactions:
        before = len(driver.log)
        driver.now_ms = max(driver.now_ms, driver.shard.next_timer_ms() or 0)
        driver.obey(driver.shard.handle_timer(driver.now()))
        if len(driver.log) > before:
            sizes.append(len(driver.log) - before)
    assert sizes == [expected, expected, 1]
    assert driver.now_ms < WEEK_MS + 100
