"""AddPartitionsToTxn and AddOffsetsToTxn: adding and verifying."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import AddPartitions
from ottla.coordinators.transaction.states import State
from tests.simulation.world.transactions import Producer, TransactionDriver

from .support import state_of

A0, A1 = ("a", 0), ("a", 1)


@pytest.fixture(params=[1, 2])
def producer(request: pytest.FixtureRequest) -> Producer:
    producer = Producer(TransactionDriver(), version=request.param)
    producer.init()
    return producer


def test_first_partitions_begin_the_transaction(producer: Producer) -> None:
    driver = producer.driver
    driver.advance(500)
    assert producer.add(A0) is ErrorCode.NONE
    driver.advance(500)
    assert producer.add(A1) is ErrorCode.NONE
    metadata = driver.shard.transactions["t"]
    assert metadata.partitions == {A0, A1}
    assert metadata.update_ms - metadata.start_ms == 500


def test_partitions_of_the_transaction_are_not_appended_again(producer: Producer) -> None:
    producer.add(A0, A1)
    size = len(producer.driver.log)
    assert producer.add(A1) is ErrorCode.NONE
    assert len(producer.driver.log) == size


def test_next_transaction_begins_without_the_partitions_of_the_previous_one(producer: Producer) -> None:
    producer.add(A0)
    producer.commit()
    producer.driver.advance(100)
    assert producer.add(A1) is ErrorCode.NONE
    metadata = producer.driver.shard.transactions["t"]
    assert (metadata.partitions, metadata.start_ms) == ({A1}, metadata.update_ms)


def test_wrong_ids_and_epochs_are_rejected(producer: Producer) -> None:
    producer_id, epoch = producer.identity
    for identity, error in (
        ((producer_id + 1, epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((producer_id, epoch + 1), ErrorCode.PRODUCER_FENCED),
        ((producer_id, epoch - 1), ErrorCode.PRODUCER_FENCED),
    ):
        producer.producer_id, producer.epoch = identity
        assert producer.add(A0) is error
        assert producer.verify(A0) == {A0: error}
    producer.transactional_id = "unknown"
    assert producer.add(A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.verify(A0) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    producer.transactional_id = ""
    assert producer.add(A0) is ErrorCode.INVALID_REQUEST
    assert producer.verify(A0) == {A0: ErrorCode.INVALID_REQUEST}


def test_old_clients_do_not_know_the_error_of_a_fenced_producer() -> None:
    producer = Producer(TransactionDriver(), version=1)
    producer.init()
    producer.epoch = 5
    assert producer.add(A0, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.add(A0, version=2) is ErrorCode.PRODUCER_FENCED
    assert producer.verify(A0) == {A0: ErrorCode.PRODUCER_FENCED}


def test_partitions_wait_until_the_previous_transaction_is_complete(producer: Producer) -> None:
    driver = producer.driver
    producer.add(A0)
    driver.holds_markers = True
    producer.commit()
    assert producer.add(A0) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.release()
    assert producer.add(A0) is ErrorCode.NONE


def test_failed_append_adds_nothing(producer: Producer) -> None:
    producer.driver.append_error = ErrorCode.NOT_COORDINATOR
    assert producer.add(A0) is ErrorCode.NOT_COORDINATOR
    assert state_of(producer.driver) is State.EMPTY
    producer.driver.append_error = ErrorCode.NONE
    assert producer.add(A0) is ErrorCode.NONE


def test_verification_tells_partitions_of_the_transaction_from_others(producer: Producer) -> None:
    assert producer.verify(A0) == {A0: ErrorCode.TRANSACTION_ABORTABLE}
    producer.add(A0)
    size = len(producer.driver.log)
    assert producer.verify(A0, A1) == {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}
    assert len(producer.driver.log) == size
    twin = producer.twin()
    producer.driver.holds_markers = True
    producer.commit()
    twin.epoch = producer.epoch
    assert twin.verify(A0) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    producer.driver.release()
    assert twin.verify(A0) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


def test_version_2_needs_records_that_can_store_it() -> None:
    driver = TransactionDriver(level=0)
    producer = Producer(driver, version=2)
    producer.init()
    assert producer.add(A0) is ErrorCode.UNSUPPORTED_VERSION
    assert producer.commit() is ErrorCode.UNSUPPORTED_VERSION
    assert driver.ask(AddPartitions("t", *producer.identity, (A0,))) == {A0: ErrorCode.NONE}


def test_no_partition_is_added_while_a_decision_may_replace_the_producer_id() -> None:
    driver = TransactionDriver()
    producer = Producer(driver)
    producer.init()
    driver.append_error = ErrorCode.NONE
    driver.holds_allocations = True
    other = Producer(driver, "other")
    driver.send(other.init_request(), 5)
    other.producer_id, other.epoch = 1, 0
    assert other.add(A0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert other.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
