"""InitProducerId: ids, epochs, fencing, and retries of lost responses (KIP-360)."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import TransactionConfig
from ottla.coordinators.transaction.states import State
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.world.transactions import FIRST_PRODUCER_ID, Producer, TransactionDriver

from .support import set_epoch, state_of


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver()


def test_new_id_gets_a_producer_id_and_epoch_0(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    assert producer.init() is ErrorCode.NONE
    assert producer.identity == (FIRST_PRODUCER_ID, 0)
    assert state_of(driver) is State.EMPTY


def test_each_new_producer_of_an_id_gets_the_next_epoch(driver: TransactionDriver) -> None:
    for epoch in range(3):
        producer = Producer(driver)
        producer.init()
        assert producer.identity == (FIRST_PRODUCER_ID, epoch)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("t", 1, producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("t", 1, producer_epoch=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("t", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("t", -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("t", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("t", 1, enable2_pc=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest("t", 1, keep_prepared_txn=True), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_requests_are_rejected(
    driver: TransactionDriver, request_: InitProducerIdRequest, error: ErrorCode
) -> None:
    response = driver.ask(request_, 6)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)
    assert not driver.log


def test_two_phase_commit_has_no_timeout() -> None:
    driver = TransactionDriver(TransactionConfig(two_phase_commit=True))
    response = driver.ask(InitProducerIdRequest("t", 0, enable2_pc=True), 6)
    producer = Producer(driver)
    assert producer.initialized(response) is ErrorCode.NONE
    producer.add(("a", 0))
    driver.advance(10**8)
    assert state_of(driver) is State.ONGOING


def test_second_request_waits_for_the_allocation_of_the_first(driver: TransactionDriver) -> None:
    driver.holds_allocations = True
    first, second = Producer(driver), Producer(driver)
    call = driver.send(first.init_request(), 5)
    assert second.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.release()
    assert first.initialized(driver.answers[call]) is ErrorCode.NONE
    assert second.init() is ErrorCode.NONE
    assert (first.epoch, second.epoch) == (0, 1)


def test_failed_allocation_is_the_error_of_the_request(driver: TransactionDriver) -> None:
    driver.allocation_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer = Producer(driver)
    assert producer.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    driver.allocation_error = ErrorCode.NONE
    assert producer.init() is ErrorCode.NONE


def test_failed_append_changes_nothing(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    assert producer.init() is ErrorCode.NOT_COORDINATOR
    driver.append_error = ErrorCode.NONE
    assert producer.init() is ErrorCode.NONE
    assert producer.epoch == 1


def test_producer_that_names_its_epoch_gets_the_next_one(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    assert producer.init(names_epoch=True) is ErrorCode.NONE
    assert producer.epoch == 1


def test_retry_with_the_previous_epoch_gets_the_same_epoch_again(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    lost = producer.twin()
    producer.init(names_epoch=True)
    assert lost.init(names_epoch=True) is ErrorCode.NONE
    assert lost.identity == producer.identity == (FIRST_PRODUCER_ID, 1)


def test_producer_that_names_an_old_epoch_is_fenced(driver: TransactionDriver) -> None:
    zombie = Producer(driver)
    zombie.init()
    Producer(driver).init()
    assert zombie.init(names_epoch=True) is ErrorCode.PRODUCER_FENCED
    assert "Expected producer epoch 0 does not match current producer epoch 1" in driver.log_lines[-1]


def test_producer_that_names_another_producer_id_is_fenced(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    producer.producer_id += 1
    assert producer.init(names_epoch=True) is ErrorCode.PRODUCER_FENCED


def test_producer_of_an_unknown_id_may_name_any_epoch(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.producer_id, producer.epoch = 5, 7
    assert producer.init(names_epoch=True) is ErrorCode.NONE
    assert producer.identity == (FIRST_PRODUCER_ID, 0)


def test_old_versions_do_not_know_the_error_of_a_fenced_producer(driver: TransactionDriver) -> None:
    zombie = Producer(driver)
    zombie.init()
    Producer(driver).init()
    assert zombie.init(names_epoch=True, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.init(names_epoch=True, version=4) is ErrorCode.PRODUCER_FENCED


# -- epochs run out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names_epoch", [False, True])
def test_last_epoch_is_followed_by_a_new_producer_id(driver: TransactionDriver, names_epoch: bool) -> None:
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_765)
    producer.epoch = 32_765
    producer.init(names_epoch=names_epoch)
    assert producer.identity == (FIRST_PRODUCER_ID, 32_766)
    producer.init(names_epoch=names_epoch)
    assert producer.identity == (FIRST_PRODUCER_ID + 1, 0)


def test_retry_after_the_change_of_the_producer_id_gets_it_again(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_766)
    producer.epoch = 32_766
    lost = producer.twin()
    producer.init(names_epoch=True)
    assert lost.init(names_epoch=True) is ErrorCode.NONE
    assert lost.identity == producer.identity == (FIRST_PRODUCER_ID + 1, 0)
    other = lost.twin()
    other.producer_id, other.epoch = FIRST_PRODUCER_ID, 32_765
    assert other.init(names_epoch=True) is ErrorCode.PRODUCER_FENCED


def test_old_epoch_of_an_exhausted_producer_id_is_fenced(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_766)
    producer.epoch = 32_764
    assert producer.init(names_epoch=True) is ErrorCode.PRODUCER_FENCED


# -- open transactions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("names_epoch", [False, True])
def test_open_transaction_is_aborted_before_a_new_epoch_is_given(level: int, names_epoch: bool) -> None:
    driver = TransactionDriver(level=level)
    producer = Producer(driver, version=1)
    producer.init()
    producer.add(("a", 0))
    successor = producer.twin()
    assert successor.init(names_epoch=names_epoch) is ErrorCode.CONCURRENT_TRANSACTIONS
    (marker,) = driver.markers
    assert (marker.commit, marker.producer_epoch) == (False, 1)
    assert marker.transaction_version == (2 if level == 2 else 0)
    assert state_of(driver) is State.COMPLETE_ABORT
    if level == 2 and names_epoch:
        # The retry is recognised by the previous epoch.
        assert successor.init(names_epoch=True) is ErrorCode.NONE
        assert successor.epoch == 1
    elif not names_epoch:
        assert successor.init() is ErrorCode.NONE
        assert successor.epoch == 2
    assert producer.add(("a", 0)) is ErrorCode.PRODUCER_FENCED
    assert producer.commit() is ErrorCode.PRODUCER_FENCED


def test_new_producer_waits_until_the_markers_are_written(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    producer.add(("a", 0))
    driver.holds_markers = True
    producer.commit()
    successor = Producer(driver)
    assert successor.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.release()
    assert successor.init() is ErrorCode.NONE
    assert successor.epoch == 2


def test_fence_that_could_not_be_stored_has_no_effect() -> None:
    driver = TransactionDriver(level=0)
    producer = Producer(driver, version=1)
    producer.init()
    producer.add(("a", 0))
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Producer(driver).init() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.append_error = ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE
    assert [marker.commit for marker in driver.markers] == [True]


def test_fencing_an_exhausted_producer_of_version_2_gives_a_new_producer_id(driver: TransactionDriver) -> None:
    producer = Producer(driver)
    producer.init()
    set_epoch(driver, 32_766)
    producer.epoch = 32_766
    producer.add(("a", 0))
    successor = Producer(driver)
    assert successor.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.markers[0].producer_epoch == 32_767
    assert successor.init() is ErrorCode.NONE
    assert successor.identity == (FIRST_PRODUCER_ID + 1, 1)


def test_fencing_an_exhausted_producer_of_version_1_gives_a_new_producer_id() -> None:
    driver = TransactionDriver(level=1)
    producer = Producer(driver, version=1)
    producer.init()
    set_epoch(driver, 32_766)
    producer.epoch = 32_766
    producer.add(("a", 0))
    successor = Producer(driver)
    assert successor.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.markers[0].producer_epoch == 32_767
    assert successor.init() is ErrorCode.NONE
    assert successor.identity == (FIRST_PRODUCER_ID + 1, 0)
