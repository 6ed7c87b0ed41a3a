"""The state machine of transactions alone: each call and each response in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    Closed,
    ConnectionLost,
    DeliveryTimedOut,
    GroupAuthorizationFailed,
    InvalidTransactionState,
    ProducerFenced,
    ProducerUnusable,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionFailed,
    UnsupportedByBroker,
    error_for,
)
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer.effects import AskCoordinator
from ottla.clients.producer.metadata import FOREVER_MS
from ottla.clients.producer.transaction_requests import CONCURRENT_BACKOFF_MS, Identity, OffsetsOfGroup
from ottla.clients.producer.transaction_states import MOVES, Event, State
from ottla.clients.producer.transactions import Call, Transactions
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.message import Message
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

E = ErrorCode
BOTH = pytest.mark.parametrize("level", [1, 2], ids=["v1", "v2"])
OFFSETS = OffsetsOfGroup("g", 3, "m", None, {TopicPartition("in", 0): OffsetAndMetadata(5)})
CALLS: dict[str, Callable[[Transactions], object]] = {
    "init_transactions": lambda t: t.initialize(),
    "leave_transactions": lambda t: t.leave(),
    "continue_transactions": lambda t: t.continue_as(Identity("x", 5, 3)),
    "begin_transaction": lambda t: t.begin(),
    "commit_transaction": lambda t: t.commit(),
    "abort_transaction": lambda t: t.abort(),
    "send": lambda t: t.check_send(),
    "send_offsets_to_transaction": lambda t: t.send_offsets(OFFSETS),
}
POSSIBLE = {
    State.UNINITIALIZED: {"init_transactions", "continue_transactions"},
    State.INITIALIZING: {"init_transactions"},
    State.READY: {"init_transactions", "leave_transactions", "begin_transaction"},
    State.IN_TRANSACTION: {"commit_transaction", "abort_transaction", "send", "send_offsets_to_transaction"},
    State.COMMITTING: {"commit_transaction"},
    State.ABORTING: {"abort_transaction"},
    State.ABORTABLE_ERROR: {"abort_transaction"},
    State.FATAL_ERROR: set(),
}


def answer_to(request: Message, code: int = 0, epoch: int = 7) -> Message:
    """The response of a coordinator, with an error code if any."""
    if isinstance(request, InitProducerIdRequest):
        return InitProducerIdResponse(error_code=code, producer_id=5, producer_epoch=epoch)
    if isinstance(request, AddPartitionsToTxnRequest):
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
            )
            for topic in request.v3_and_below_topics
        ])  # fmt: skip
    if isinstance(request, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(error_code=code)
    if isinstance(request, TxnOffsetCommitRequest):
        return TxnOffsetCommitResponse(topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions]
            )
            for topic in request.topics
        ])  # fmt: skip
    assert isinstance(request, EndTxnRequest)
    return EndTxnResponse(error_code=code)


class Machine(Transactions):
    """Transactions with a coordinator that answers at once."""

    def __init__(self, level: int = 2) -> None:
        super().__init__("x", 60_000, lambda failures: 100 << failures)
        self.level = level
        self.learn(level)
        self.now_ms = 1000
        self.requests: list[Message] = []

    def ask(self, *, is_drained: bool = True) -> AskCoordinator | None:
        self.validate()
        asked = self.next_request(self.now_ms, is_drained=is_drained)
        self.validate()
        if asked is not None:
            self.requests.append(asked.request)
        return asked

    def answer(self, code: int = 0) -> type[Message] | None:
        """Answer the next request with the code; returns the type of the request."""
        asked = self.ask()
        if asked is None:
            return None
        response = answer_to(asked.request, code)
        if isinstance(response, EndTxnResponse) and self.is_v2 and not code:
            response.producer_id, response.producer_epoch = 5, self.identity.epoch + 1
        self.answered(response, self.now_ms)
        self.validate()
        return type(asked.request)

    def finish(self) -> list[type[Message]]:
        """Answer every request; returns their types."""
        made: list[type[Message]] = []
        while (kind := self.answer()) is not None:
            made.append(kind)
            assert len(made) < 10
        return made


def machine_in(state: State, level: int = 2) -> Machine:
    """A machine that came to a state in the usual way, with a transaction that the coordinator knows."""
    machine = Machine(level)
    if state is State.FATAL_ERROR:
        machine.stop(ClientError("broken"))
    if state in {State.UNINITIALIZED, State.FATAL_ERROR}:
        return machine
    machine.initialize()
    if state is State.INITIALIZING:
        return machine
    machine.finish()
    if state is State.READY:
        return machine
    machine.begin()
    machine.may_send("t", 0)
    machine.finish()
    if state is State.COMMITTING:
        machine.commit()
    elif state is State.ABORTING:
        machine.abort()
    elif state is State.ABORTABLE_ERROR:
        machine.batch_failed(DeliveryTimedOut("late"), was_sent=True)
    machine.requests.clear()
    assert machine.state is state
    return machine


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_calls_that_do_not_fit_the_state_change_nothing_and_say_what_to_do(state: State, call: str) -> None:
    machine = machine_in(state)
    if call in POSSIBLE[state]:
        CALLS[call](machine)
        return
    with pytest.raises(ClientError) as raised:
        CALLS[call](machine)
    assert machine.state is state
    expected = {State.ABORTABLE_ERROR: TransactionFailed, State.FATAL_ERROR: ProducerUnusable}
    assert type(raised.value) is expected.get(state, InvalidTransactionState)
    text = str(raised.value)
    assert "\n" not in text
    assert any(name in text for name in ("init_", "begin_", "commit_", "abort_", "Close it")), text


def test_states_are_reachable_and_end_in_ready_or_fatal_error() -> None:
    reached = {State.UNINITIALIZED, *MOVES.values()}
    assert reached == set(State)
    for state in set(State) - {State.FATAL_ERROR}:
        assert any(source is state and event is not Event.STOPPED for source, event in MOVES), state


@BOTH
def test_transaction_sends_the_requests_of_its_protocol(level: int) -> None:
    machine = machine_in(State.READY, level)
    machine.begin()
    assert machine.may_send("t", 0) is (level == 2)
    offsets = machine.send_offsets(OFFSETS)
    registrations = [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest] if level == 1 else []
    assert machine.finish() == [*registrations, TxnOffsetCommitRequest]
    assert machine.may_send("t", 0)
    assert offsets.done
    call = machine.commit()
    assert machine.ask(is_drained=False) is None, "records are in flight"
    assert machine.finish() == [EndTxnRequest]
    assert call.done
    assert call.error is None
    assert machine.state is State.READY
    assert machine.identity.epoch == (8 if level == 2 else 7)


@BOTH
def test_requests_are_limited_to_the_versions_of_the_protocol(level: int) -> None:
    machine = machine_in(State.READY, level)
    machine.begin()
    machine.may_send("t", 0)
    machine.send_offsets(OFFSETS)
    machine.commit()
    limits = {}
    while (asked := machine.ask()) is not None:
        limits[type(asked.request).__name__] = (asked.oldest, asked.newest)
        machine.answered(answer_to(asked.request), machine.now_ms)
    if level == 1:
        assert limits == {
            "AddPartitionsToTxnRequest": (0, 3), "AddOffsetsToTxnRequest": (0, None),
            "TxnOffsetCommitRequest": (3, 4), "EndTxnRequest": (0, 4),
        }  # fmt: skip
    else:
        assert limits == {"TxnOffsetCommitRequest": (5, None), "EndTxnRequest": (5, None)}


@BOTH
def test_producer_is_initialized_again_between_two_transactions_without_its_fenced_id(level: int) -> None:
    machine = machine_in(State.READY, level)
    machine.initialize()
    asked = machine.ask()
    assert asked is not None
    assert isinstance(asked.request, InitProducerIdRequest)
    assert (asked.request.producer_id, asked.request.producer_epoch) == (-1, -1)
    machine.answered(answer_to(asked.request, epoch=9), machine.now_ms)
    assert (machine.state, machine.identity.epoch) == (State.READY, 9)


def test_producer_continues_with_the_state_that_another_process_has_left() -> None:
    here, there = machine_in(State.READY), Machine()
    left = here.leave()
    assert left is not None
    assert here.identity.producer_id == -1
    there.continue_as(left)
    there.begin()
    there.may_send("t", 0)
    call = there.commit()
    assert there.finish() == [EndTxnRequest]
    assert call.done
    again = there.leave()
    assert again == left._replace(epoch=left.epoch + 1)
    here.continue_as(again)
    here.begin()


def test_producer_of_protocol_1_is_not_left_since_its_sequence_numbers_go_on() -> None:
    machine = machine_in(State.READY, level=1)
    assert machine.leave() is None
    machine.initialize()


@BOTH
def test_offsets_of_a_commit_follow_the_records_and_are_committed_once(level: int) -> None:
    machine = machine_in(State.READY, level)
    machine.begin()
    machine.may_send("t", 0)
    machine.finish()
    machine.requests.clear()
    call = machine.commit(OFFSETS)
    assert machine.ask(is_drained=False) is None, "the records come first"
    assert machine.commit(OFFSETS) is call, "it timed out, and the program calls it again"
    requests = machine.finish()
    assert requests == [*([AddOffsetsToTxnRequest] if level == 1 else []), TxnOffsetCommitRequest, EndTxnRequest]
    assert call.done
    assert call.error is None


@pytest.mark.parametrize("code", [E.GROUP_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID])
def test_commit_fails_with_its_offsets(code: ErrorCode) -> None:
    machine = machine_in(State.IN_TRANSACTION)
    call = machine.commit(OFFSETS)
    machine.answer(code)
    assert isinstance(call.error, TransactionFailed)
    assert machine.state is State.ABORTABLE_ERROR
    machine.abort()
    assert machine.finish() == [EndTxnRequest]


def test_another_transactional_id_is_refused_while_a_call_is_pending() -> None:
    machine = machine_in(State.INITIALIZING)
    with pytest.raises(InvalidTransactionState, match="call it again to wait"):
        machine.initialize("y")
    assert machine.transactional_id == "x"
    assert machine.initialize("x") is machine.initialize()


@BOTH
def test_producer_may_use_several_transactional_ids_in_turn(level: int) -> None:
    machine = machine_in(State.READY, level)
    for name in ("y", "z"):
        machine.initialize(name)
        asked = machine.ask()
        assert asked is not None
        assert isinstance(asked.request, InitProducerIdRequest)
        assert (asked.request.transactional_id, asked.request.producer_id) == (name, -1)
        machine.answered(answer_to(asked.request), machine.now_ms)
        machine.begin()
        machine.may_send("t", 0)
        machine.commit()
        machine.finish()
        end = machine.requests[-1]
        assert isinstance(end, EndTxnRequest)
        assert end.transactional_id == name


@BOTH
def test_empty_transaction_ends_without_a_request(level: int) -> None:
    for end in (Transactions.commit, Transactions.abort):
        machine = machine_in(State.READY, level)
        machine.begin()
        call = end(machine)
        assert machine.finish() == []
        assert call.done
        assert machine.state is State.READY


@BOTH
def test_epoch_is_raised_after_a_failed_transaction(level: int) -> None:
    machine = machine_in(State.ABORTABLE_ERROR, level)
    call = machine.abort()
    requests = machine.finish()
    assert requests == ([EndTxnRequest] if level == 2 else [EndTxnRequest, InitProducerIdRequest])
    if level == 1:
        renewal = machine.requests[-1]
        assert isinstance(renewal, InitProducerIdRequest)
        assert (renewal.producer_id, renewal.producer_epoch) == (5, 7)
    assert call.done
    assert machine.state is State.READY


def test_epoch_is_raised_only_if_a_dropped_batch_was_sent() -> None:
    for was_sent in (True, False):
        machine = machine_in(State.ABORTING, level=1)
        machine.batch_failed(machine.drop_reason(), was_sent=was_sent)
        assert (InitProducerIdRequest in machine.finish()) is was_sent


def test_new_epoch_is_requested_only_in_versions_that_name_the_old_one() -> None:
    machine = machine_in(State.ABORTABLE_ERROR, level=1)
    machine.abort()
    machine.answer()
    asked = machine.ask()
    assert asked is not None
    assert asked.oldest == 3
    machine.lost(UnsupportedByBroker("too old"), machine.now_ms)
    assert machine.state is State.FATAL_ERROR


def test_switch_to_protocol_2_raises_the_epoch_between_two_transactions() -> None:
    machine = machine_in(State.IN_TRANSACTION, level=1)
    machine.learn(2)
    assert not machine.is_v2, "the protocol of an open transaction is fixed"
    call = machine.commit()
    assert machine.finish() == [EndTxnRequest, InitProducerIdRequest]
    assert call.done
    assert machine.is_v2


def test_return_to_protocol_1_takes_effect_with_the_next_transaction() -> None:
    machine = machine_in(State.IN_TRANSACTION, level=2)
    machine.learn(1)
    machine.commit()
    assert machine.finish() == [EndTxnRequest]
    assert not machine.is_v2


@pytest.mark.parametrize("state", [State.INITIALIZING, State.COMMITTING, State.ABORTING])
def test_timed_out_call_can_be_repeated(state: State) -> None:
    machine = machine_in(state)
    call = {State.INITIALIZING: machine.initialize, State.COMMITTING: machine.commit, State.ABORTING: machine.abort}[
        state
    ]
    first = call()
    machine.ask()
    assert call() is first
    machine.lost(ConnectionLost("gone"), machine.now_ms)
    machine.now_ms += 100
    machine.finish()
    assert first.done
    assert first.error is None


def test_lost_commit_is_repeated_until_it_has_an_outcome_and_never_aborted() -> None:
    machine = machine_in(State.COMMITTING)
    call = machine.commit()
    for attempt in range(5):
        asked = machine.ask()
        assert asked is not None
        assert isinstance(asked.request, EndTxnRequest)
        assert asked.request.committed
        assert asked.forget is (attempt > 0), "the coordinator may have moved"
        machine.lost(ConnectionLost("gone"), machine.now_ms)
        assert machine.ask() is None, "it backs off"
        with pytest.raises(InvalidTransactionState, match="commit_transaction"):
            machine.abort()
        machine.now_ms = machine.next_ms()
    machine.finish()
    assert call.done
    assert call.error is None


def test_concurrent_transactions_are_retried_quickly() -> None:
    machine = machine_in(State.INITIALIZING)
    machine.answer(E.CONCURRENT_TRANSACTIONS)
    assert machine.next_ms() == machine.now_ms + CONCURRENT_BACKOFF_MS
    machine = machine_in(State.INITIALIZING)
    machine.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert machine.next_ms() == machine.now_ms + 100


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (E.NOT_COORDINATOR, State.COMMITTING),
        (E.COORDINATOR_NOT_AVAILABLE, State.COMMITTING),
        (E.CONCURRENT_TRANSACTIONS, State.COMMITTING),
        (E.COORDINATOR_LOAD_IN_PROGRESS, State.COMMITTING),
        (E.PRODUCER_FENCED, State.FATAL_ERROR),
        (E.INVALID_PRODUCER_EPOCH, State.FATAL_ERROR),
        (E.INVALID_TXN_STATE, State.FATAL_ERROR),
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        (E.UNKNOWN_SERVER_ERROR, State.FATAL_ERROR),
        (E.UNKNOWN_PRODUCER_ID, State.ABORTABLE_ERROR),
        (E.INVALID_PRODUCER_ID_MAPPING, State.ABORTABLE_ERROR),
        (E.TRANSACTION_ABORTABLE, State.ABORTABLE_ERROR),
        (9999, State.FATAL_ERROR),
    ],
)
def test_commit_is_repeated_or_fails_by_the_code_of_its_response(code: int, state: State) -> None:
    machine = machine_in(State.COMMITTING)
    call = machine.commit()
    assert machine.answer(code) is EndTxnRequest
    assert machine.state is state
    assert call.done is (state is not State.COMMITTING)
    if code in {E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH}:
        assert isinstance(call.error, ProducerFenced)
    elif state is State.FATAL_ERROR:
        assert isinstance(call.error, ProducerUnusable)
    elif state is State.ABORTABLE_ERROR:
        assert isinstance(call.error, TransactionFailed)
        assert isinstance(call.error.__cause__, BrokerError)


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest])
@pytest.mark.parametrize(
    ("code", "state"),
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, State.IN_TRANSACTION),
        (E.NOT_COORDINATOR, State.IN_TRANSACTION),
        (E.PRODUCER_FENCED, State.FATAL_ERROR),
        (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        (E.GROUP_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        (E.INVALID_PRODUCER_ID_MAPPING, State.ABORTABLE_ERROR),
    ],
)
def test_part_of_a_transaction_is_repeated_or_fails_by_its_code(kind: type[Message], code: int, state: State) -> None:
    machine = machine_in(State.READY, level=1)
    machine.begin()
    machine.may_send("t", 0)
    call = machine.send_offsets(OFFSETS)
    while True:
        asked = machine.ask()
        assert asked is not None
        machine.answered(answer_to(asked.request, code if isinstance(asked.request, kind) else 0), machine.now_ms)
        if isinstance(asked.request, kind):
            break
    assert machine.state is state
    assert call.done is (state is not State.IN_TRANSACTION)
    if state is State.IN_TRANSACTION:
        assert machine.ask() is None
        machine.now_ms = machine.next_ms()
        assert machine.answer() is kind


def test_rebalanced_group_makes_the_transaction_fail_and_it_can_be_repeated() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    call = machine.send_offsets(OFFSETS)
    machine.answer(E.ILLEGAL_GENERATION)
    assert isinstance(call.error, TransactionFailed)
    assert "rebalanced" in str(call.error)
    machine.abort()
    machine.finish()
    machine.begin()


def test_group_without_permission_to_be_looked_up_makes_the_transaction_fail() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    call = machine.send_offsets(OFFSETS)
    machine.ask()
    machine.lost(GroupAuthorizationFailed("no"), machine.now_ms)
    assert isinstance(call.error, TransactionFailed)


def test_id_that_the_coordinator_forgot_is_replaced_without_endtxn() -> None:
    machine = machine_in(State.IN_TRANSACTION, level=1)
    machine.batch_failed(error_for(E.INVALID_PRODUCER_ID_MAPPING), was_sent=True)
    call = machine.abort()
    assert machine.finish() == [InitProducerIdRequest]
    assert call.done


@pytest.mark.parametrize("code", [E.TRANSACTION_ABORTABLE, E.UNKNOWN_PRODUCER_ID])
def test_refused_abort_stops_the_producer_instead_of_looping(code: ErrorCode) -> None:
    machine = machine_in(State.ABORTING)
    machine.answer(code)
    assert machine.state is State.FATAL_ERROR
    assert machine.ask() is None


def test_registration_without_a_response_is_repeated_before_an_abort() -> None:
    """If it arrived, the coordinator knows the transaction; an EndTxn without one would be refused."""
    machine = machine_in(State.READY, level=1)
    machine.begin()
    machine.may_send("t", 0)
    machine.ask()
    machine.lost(ConnectionLost("gone"), machine.now_ms)
    machine.abort()
    machine.now_ms = machine.next_ms()
    machine.answer(E.NOT_COORDINATOR)
    machine.now_ms = machine.next_ms()
    assert machine.finish() == [AddPartitionsToTxnRequest, EndTxnRequest]


@pytest.mark.parametrize(
    "error", [ConnectionLost("gone"), BrokerUnavailable("unknown host", retriable=False)], ids=["lost", "unknown"]
)
def test_transaction_survives_connections_that_are_lost(error: ClientError) -> None:
    machine = machine_in(State.COMMITTING)
    machine.ask()
    machine.lost(error, machine.now_ms)
    assert machine.state is State.COMMITTING
    assert machine.next_ms() < FOREVER_MS


def test_first_initialization_fails_at_once_where_no_broker_can_answer_and_may_be_repeated() -> None:
    machine = machine_in(State.INITIALIZING)
    call = machine.initialize()
    machine.ask()
    machine.lost(BrokerUnavailable("unknown host", retriable=False), machine.now_ms)
    assert isinstance(call.error, BrokerUnavailable)
    again = machine.initialize()
    machine.answer(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert isinstance(again.error, TransactionalIdAuthorizationFailed)
    assert machine.state is State.UNINITIALIZED
    machine.initialize()
    machine.answer(E.INVALID_TRANSACTION_TIMEOUT)
    assert machine.state is State.UNINITIALIZED


def test_failure_while_aborting_does_not_stop_the_abort() -> None:
    machine = machine_in(State.ABORTING)
    machine.batch_failed(DeliveryTimedOut("late"), was_sent=True)
    machine.finish()
    assert machine.state is State.READY


def test_first_failure_is_reported() -> None:
    machine = machine_in(State.ABORTABLE_ERROR)
    machine.batch_failed(ConnectionLost("second"), was_sent=True)
    with pytest.raises(TransactionFailed, match="late"):
        machine.check_send()


def test_fenced_batch_stops_the_producer_and_an_old_epoch_only_the_transaction() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    machine.batch_failed(error_for(E.INVALID_PRODUCER_EPOCH), was_sent=True)
    assert machine.state is State.ABORTABLE_ERROR, "the coordinator decides whether it is fenced (KIP-588)"
    machine.batch_failed(error_for(E.PRODUCER_FENCED), was_sent=True)
    with pytest.raises(ProducerFenced, match=r"transaction\.timeout\.ms"):
        machine.abort()


def test_abort_drops_offsets_that_were_not_committed() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    call = machine.send_offsets(OFFSETS)
    machine.abort()
    assert isinstance(call.error, TransactionAborted)
    assert TxnOffsetCommitRequest not in machine.finish()


@pytest.mark.parametrize("state", [state for state in State if state is not State.FATAL_ERROR])
def test_close_aborts_an_open_transaction_and_waits_for_its_end(state: State) -> None:
    machine = machine_in(state)
    call = machine.close()
    is_pending = state in {State.COMMITTING, State.ABORTING}
    assert (call is not None) is (is_pending or state in {State.IN_TRANSACTION, State.ABORTABLE_ERROR})
    if not is_pending and call is not None:
        assert machine.state is State.ABORTING


def test_stop_fails_every_call_and_ignores_late_responses() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    offsets, woken = machine.send_offsets(OFFSETS), []
    commit: Call = machine.commit()
    for call in (offsets, commit):
        call.waiters.append(lambda: woken.append(1))
    asked = machine.ask()
    assert asked is not None
    machine.stop(Closed("The producer was closed"))
    assert isinstance(offsets.error, Closed)
    assert isinstance(commit.error, Closed)
    for waker in machine.wakers:
        waker()
    assert woken == [1, 1]
    machine.answered(answer_to(asked.request), machine.now_ms)
    assert machine.state is State.FATAL_ERROR


def test_throttled_producer_waits_before_its_next_request() -> None:
    machine = machine_in(State.IN_TRANSACTION)
    machine.send_offsets(OFFSETS)
    asked = machine.ask()
    assert asked is not None
    response = answer_to(asked.request)
    response.throttle_time_ms = 500  # type: ignore[attr-defined]
    machine.answered(response, machine.now_ms)
    machine.commit()
    assert machine.ask() is None
    assert machine.next_ms() == machine.now_ms + 500
