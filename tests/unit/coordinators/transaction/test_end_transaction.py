"""EndTxn: commits, aborts, retries of lost responses, and epochs (KIP-890)."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction.states import State
from tests.simulation.world.transactions import FIRST_PRODUCER_ID, Producer, TransactionDriver

from .support import set_epoch, state_of

A0, B1 = ("a", 0), ("b", 1)


def ready(version: int, level: int = 2) -> Producer:
    producer = Producer(TransactionDriver(level=level), version=version)
    producer.init()
    return producer


@pytest.mark.parametrize(("version", "level"), [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("commit", [True, False])
def test_decision_is_appended_before_the_markers_and_completed_after_them(
    version: int, level: int, commit: bool
) -> None:
    producer = ready(version, level)
    driver = producer.driver
    producer.add(A0, B1)
    driver.holds_markers = True
    assert producer.end(commit=commit) is ErrorCode.NONE
    assert state_of(driver) is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    (marker,) = driver.markers
    assert (marker.commit, marker.partitions, marker.producer_id) == (commit, (A0, B1), FIRST_PRODUCER_ID)
    assert marker.producer_epoch == (1 if version == 2 else 0)
    assert marker.transaction_version == (2 if version == 2 else 0)
    assert producer.epoch == marker.producer_epoch
    driver.release()
    assert state_of(driver) is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert not driver.shard.transactions["t"].partitions


@pytest.mark.parametrize("version", [1, 2])
def test_wrong_ids_and_epochs_are_rejected(version: int) -> None:
    producer = ready(version)
    producer.add(A0)
    producer_id, epoch = producer.identity
    for identity, error in (
        ((producer_id + 1, epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ((producer_id, epoch + 1), ErrorCode.PRODUCER_FENCED),
        ((producer_id, epoch - 1), ErrorCode.PRODUCER_FENCED),
    ):
        producer.producer_id, producer.epoch = identity
        assert producer.commit() is error
    producer.transactional_id = "unknown"
    assert producer.commit() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.transactional_id = ""
    assert producer.commit() is ErrorCode.INVALID_REQUEST
    assert state_of(producer.driver) is State.ONGOING


def test_old_clients_do_not_know_the_error_of_a_fenced_producer() -> None:
    producer = ready(1)
    producer.epoch = 7
    request = producer.end_request(commit=True)
    assert producer.driver.ask(request, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.driver.ask(request, 2).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_decision_that_could_not_be_appended_did_not_happen(version: int, commit: bool) -> None:
    producer = ready(version)
    producer.add(A0)
    producer.driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.end(commit=commit) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (state_of(producer.driver), producer.driver.markers) == (State.ONGOING, [])
    producer.driver.append_error = ErrorCode.NONE
    assert producer.end(commit=not commit) is ErrorCode.NONE


# -- without epoch bump --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_retry_of_version_1_is_recognised_by_the_state(commit: bool) -> None:
    producer = ready(1)
    producer.add(A0)
    producer.end(commit=commit)
    size = len(producer.driver.log)
    assert producer.end(commit=commit) is ErrorCode.NONE
    assert producer.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE
    assert len(producer.driver.log) == size
    assert "but received transaction marker result to send" in producer.driver.log_lines[-1]


def test_transaction_of_version_1_that_has_not_begun_cannot_end() -> None:
    producer = ready(1)
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [1, 2])
def test_retry_before_the_markers_are_written_must_wait(version: int) -> None:
    producer = ready(version)
    producer.add(A0)
    retry = producer.twin()
    producer.driver.holds_markers = True
    producer.commit()
    assert retry.commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert retry.abort() is ErrorCode.CONCURRENT_TRANSACTIONS
    producer.driver.release()
    assert retry.commit() is ErrorCode.NONE
    assert retry.identity == producer.identity


def test_response_of_version_1_has_no_identity() -> None:
    producer = ready(1)
    producer.add(A0)
    response = producer.driver.ask(producer.end_request(commit=True), 4)
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


# -- with epoch bump -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_retry_of_version_2_is_recognised_by_the_previous_epoch(commit: bool) -> None:
    producer = ready(2)
    producer.add(A0)
    retry, opposite = producer.twin(), producer.twin()
    producer.end(commit=commit)
    size = len(producer.driver.log)
    assert opposite.end(commit=not commit) is ErrorCode.INVALID_TXN_STATE
    assert retry.end(commit=commit) is ErrorCode.NONE
    assert retry.identity == producer.identity == (FIRST_PRODUCER_ID, 1)
    assert len(producer.driver.log) == size


@pytest.mark.parametrize("first", [True, False])
def test_present_epoch_of_version_2_is_about_the_next_transaction(first: bool) -> None:
    """A client that does not know whether its transaction has begun aborts it. It cannot commit it."""
    producer = ready(2)
    producer.add(A0)
    producer.end(commit=first)
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert producer.abort() is ErrorCode.NONE
    assert producer.epoch == 2
    assert state_of(producer.driver) is State.COMPLETE_ABORT
    assert len(producer.driver.markers) == 1, "a transaction without partitions needs no marker"


def test_transaction_of_version_2_that_has_not_begun_can_be_aborted() -> None:
    producer = ready(2)
    stale = producer.twin()
    stale.epoch -= 1
    assert producer.commit() is ErrorCode.INVALID_TXN_STATE
    assert stale.abort() is ErrorCode.PRODUCER_FENCED
    assert producer.abort() is ErrorCode.NONE
    assert producer.epoch == 1
    metadata = producer.driver.shard.transactions["t"]
    assert (metadata.state, metadata.start_ms) == (State.COMPLETE_ABORT, metadata.update_ms)


def test_transaction_that_began_after_a_retry_was_sent_is_not_ended_by_it() -> None:
    producer = ready(2)
    producer.add(A0)
    late = producer.twin()
    producer.commit()
    producer.add(B1)
    assert late.commit() is ErrorCode.PRODUCER_FENCED
    assert late.abort() is ErrorCode.PRODUCER_FENCED
    assert state_of(producer.driver) is State.ONGOING


# -- epochs run out ------------------------------------------------------------------------------------------------


def exhausted() -> Producer:
    producer = ready(2)
    set_epoch(producer.driver, 32_766)
    producer.epoch = 32_766
    producer.add(A0)
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_end_of_the_last_epoch_gives_a_new_producer_id(commit: bool) -> None:
    producer = exhausted()
    retry = producer.twin()
    producer.driver.holds_markers = True
    assert producer.end(commit=commit) is ErrorCode.NONE
    assert producer.identity == (FIRST_PRODUCER_ID + 1, 0)
    (marker,) = producer.driver.markers
    assert (marker.producer_id, marker.producer_epoch) == (FIRST_PRODUCER_ID, 32_767)
    assert retry.end(commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.add(A0) is ErrorCode.CONCURRENT_TRANSACTIONS
    producer.driver.release()
    assert retry.end(commit=commit) is ErrorCode.NONE
    assert retry.identity == producer.identity
    assert producer.add(A0) is ErrorCode.NONE


def test_new_producer_id_survives_a_restart_before_the_markers() -> None:
    producer = exhausted()
    retry = producer.twin()
    producer.driver.holds_markers = True
    producer.commit()
    producer.driver.holds_markers = False
    producer.driver.restart()
    producer.driver.advance(0)
    assert [marker.producer_epoch for marker in producer.driver.markers] == [32_767, 32_767]
    assert retry.commit() is ErrorCode.NONE
    assert retry.identity == (FIRST_PRODUCER_ID + 1, 0)
    opposite = exhausted()
    assert opposite.twin().abort() is ErrorCode.NONE
    opposite.driver.restart()
    assert opposite.commit() is ErrorCode.INVALID_TXN_STATE


def test_end_of_the_last_epoch_waits_for_the_new_producer_id() -> None:
    producer = exhausted()
    driver = producer.driver
    driver.holds_allocations = True
    call = driver.send(producer.end_request(commit=True), 5)
    assert producer.twin().commit() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.add(B1) is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.release()
    assert producer.ended(driver.answers[call]) is ErrorCode.NONE
    assert producer.identity == (FIRST_PRODUCER_ID + 1, 0)


def test_end_of_the_last_epoch_fails_without_a_new_producer_id() -> None:
    producer = exhausted()
    producer.driver.allocation_error = ErrorCode.REQUEST_TIMED_OUT
    assert producer.commit() is ErrorCode.REQUEST_TIMED_OUT
    assert state_of(producer.driver) is State.ONGOING
    producer.driver.allocation_error = ErrorCode.NONE
    assert producer.commit() is ErrorCode.NONE


def test_predecessor_does_not_get_the_epoch_of_its_successor() -> None:
    """The successor's transaction did not bump the epoch, so that the predecessor's request is not a retry of it."""
    predecessor = ready(2)
    successor = Producer(predecessor.driver, version=1)
    successor.init()
    successor.add(A0)
    successor.abort()
    assert predecessor.abort() is ErrorCode.PRODUCER_FENCED
    assert predecessor.epoch == 0
