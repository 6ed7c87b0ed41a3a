"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import re

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import DescribeTransaction, ListTransactions
from ottla.coordinators.transaction.admin import unknown_states
from tests.simulation.world.transactions import FIRST_PRODUCER_ID, WALL_START_MS, Producer, TransactionDriver

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


@pytest.fixture
def driver() -> TransactionDriver:
    driver = TransactionDriver()
    for name in ("empty", "open", "deciding"):
        Producer(driver, name).init()
    deciding = Producer(driver, "deciding")
    deciding.producer_id, deciding.epoch = FIRST_PRODUCER_ID + 2, 0
    deciding.add(A0, B0, A1)
    driver.marker_errors = {A1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    deciding.commit()
    driver.advance(1_000)
    late = Producer(driver, "open")
    late.producer_id, late.epoch = FIRST_PRODUCER_ID + 1, 0
    late.add(B0, A1, A0)
    return driver


def test_open_transaction_is_described(driver: TransactionDriver) -> None:
    row = driver.ask(DescribeTransaction("open"))
    assert (row.error_code, row.transactional_id, row.transaction_state) == (ErrorCode.NONE, "open", "Ongoing")
    assert (row.producer_id, row.producer_epoch, row.transaction_timeout_ms) == (FIRST_PRODUCER_ID + 1, 0, 60_000)
    assert row.transaction_start_time_ms == WALL_START_MS + 1_000
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("a", [0, 1]), ("b", [0])]


def test_decided_transaction_is_described_with_the_markers_that_are_left(driver: TransactionDriver) -> None:
    row = driver.ask(DescribeTransaction("deciding"))
    assert (row.transaction_state, row.producer_epoch) == ("PrepareCommit", 1)
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("a", [1])]


def test_transaction_that_has_not_begun_is_described(driver: TransactionDriver) -> None:
    row = driver.ask(DescribeTransaction("empty"))
    assert (row.transaction_state, row.transaction_start_time_ms, row.topics) == ("Empty", -1, [])


def test_unknown_id_is_an_error(driver: TransactionDriver) -> None:
    assert driver.ask(DescribeTransaction("other")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.ask(DescribeTransaction("")).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ListTransactions(), ["empty", "open", "deciding"]),
        (ListTransactions(states=frozenset({"Ongoing", "Empty"})), ["empty", "open"]),
        (ListTransactions(states=frozenset({"ongoing"})), []),
        (ListTransactions(producer_ids=frozenset({FIRST_PRODUCER_ID, 5})), ["empty"]),
        (ListTransactions(duration_ms=0), ["empty", "deciding"]),
        (ListTransactions(duration_ms=999), ["empty", "deciding"]),
        (ListTransactions(duration_ms=1_000), ["empty"]),
        (ListTransactions(matches=re.compile("d.*|e").fullmatch), ["deciding"]),
        (ListTransactions(frozenset({"Ongoing"}), frozenset({FIRST_PRODUCER_ID})), []),
    ],
)
def test_list_matches_all_filters(driver: TransactionDriver, filters: ListTransactions, expected: list[str]) -> None:
    assert [row.transactional_id for row in driver.ask(filters)] == expected


def test_rows_have_producer_id_and_state(driver: TransactionDriver) -> None:
    row = driver.ask(ListTransactions())[1]
    assert (row.producer_id, row.transaction_state) == (FIRST_PRODUCER_ID + 1, "Ongoing")


def test_unknown_states_are_reported() -> None:
    titles = ["Ongoing", "PrepareEpochFence", "Dead", "ongoing", "Stable", "CompleteCommit"]
    assert unknown_states(titles) == ["ongoing", "Stable"]
