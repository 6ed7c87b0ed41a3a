"""One partition of `__transaction_state`: the transactions of those transactional ids that hash to it.

`step`, `handle_timer` and the reports of outcomes return effects. Durable state changes only in `replay`, which is
called once for each record of the log in its order, whether the record was just appended or is loaded after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Appended, Call, Effects, Moment
from ottla.coordinators.expiry_clock import ExpiryClock
from ottla.coordinators.transaction import (
    add_partitions,
    admin,
    end_transaction,
    expiry,
    init_producer_id,
    markers,
    timeouts,
)
from ottla.coordinators.transaction.config import TransactionConfig
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.errors import refuse
from ottla.coordinators.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    ListTransactions,
    MarkersWritten,
    ProducerIdAllocated,
    TopicPartition,
)
from ottla.coordinators.transaction.follow_ups import AnswerAdd, Complete, EndOrder, Expire, Initialize, ids_of
from ottla.coordinators.transaction.metadata import LARGEST_EPOCH, NO_PRODUCER_ID, NO_TIMEOUT_MS, Metadata
from ottla.coordinators.transaction.records import metadata_of
from ottla.coordinators.transaction.states import IDLE, PREPARED, State
from ottla.coordinators.transaction.timer_keys import EXPIRY, TIMEOUTS, Kind
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.transaction_records import TransactionLogKey, TransactionLogValue, decode_record

Q = TypeVar("Q")


def _row(kind: type[Q], handler: Callable[[Core, Call[Q], Q, Moment], Effects]) -> tuple[type, Callable[..., Effects]]:
    """Return a row of the table of handlers; type checkers compare the handler with the kind of its requests."""
    return kind, handler


_HANDLERS = dict(
    [
        _row(InitProducerIdRequest, init_producer_id.initialize),
        _row(AddPartitions, add_partitions.add),
        _row(EndTxnRequest, end_transaction.end),
        _row(DescribeTransaction, admin.describe),
        _row(ListTransactions, admin.list_all),
    ]
)
_AFTER_APPEND: dict[type, Callable[[Core, Any, ErrorCode, Moment], Effects]] = {
    Initialize: init_producer_id.appended,
    AnswerAdd: add_partitions.appended,
    EndOrder: end_transaction.appended,
    Complete: markers.completed,
    Expire: expiry.appended,
}
_AFTER_ALLOCATION: dict[type, Callable[[Core, Any, int, ErrorCode, Moment], Effects]] = {
    Initialize: init_producer_id.allocated,
    EndOrder: end_transaction.allocated,
}


class TransactionShard:
    """The transactions of one partition. Not thread safe."""

    def __init__(
        self, config: TransactionConfig, partition: int, coordinator_epoch: int, transaction_version: Callable[[], int]
    ) -> None:
        self.skipped_records = 0
        """The number of loaded records of unknown types."""
        self._core = Core(config, partition, coordinator_epoch, transaction_version)
        self._expiry_clock = ExpiryClock()

    @property
    def transactions(self) -> Mapping[str, Metadata]:
        """The state of each transactional id; read only."""
        return self._core.transactions

    # -- requests ----------------------------------------------------------------------------------------------

    def step(self, call: Call[Any], now: Moment) -> Effects:
        """Decide on one request."""
        return _HANDLERS[type(call.request)](self._core, call, call.request, now)

    def has_open(self, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]) -> bool:
        """Whether the producer (id, epoch) has a transaction open with all of the partitions, and no change is due."""
        metadata = self._core.transactions.get(transactional_id)
        return (
            metadata is not None
            and metadata.state is State.ONGOING
            and (metadata.producer_id, metadata.producer_epoch) == producer
            and transactional_id not in self._core.pending
            and metadata.partitions.issuperset(partitions)
        )

    def handle_appended(self, event: Appended, now: Moment) -> Effects:
        """Apply the records of an append that succeeded, then do what follows from its outcome."""
        core = self._core
        records, next_value, follow_up = core.in_flight.pop(event.append_id)
        core.pending.difference_update(ids_of(follow_up))
        if event.error is ErrorCode.NONE:
            if next_value is not None:
                # As `replay` would decode it, with the fields that last until the next restart.
                (transactional_id,) = ids_of(follow_up)
                core.put(transactional_id, next_value, now)
            else:
                for position, (key, value) in enumerate(records):
                    self.replay(key, value, event.base_offset + position, now=now)
        return _AFTER_APPEND[type(follow_up)](core, follow_up, event.error, now)

    def handle_producer_id(self, event: ProducerIdAllocated, now: Moment) -> Effects:
        """Continue the operation that needed a new producer id."""
        core = self._core
        follow_up = core.allocations.pop(event.id)
        core.pending.discard(follow_up.transactional_id)
        return _AFTER_ALLOCATION[type(follow_up)](core, follow_up, event.producer_id, event.error, now)

    def handle_markers(self, event: MarkersWritten, now: Moment) -> Effects:
        """Complete the transaction, or write the markers again that could not be written."""
        return markers.written(self._core, event, now)

    # -- time --------------------------------------------------------------------------------------------------

    def next_timer_ms(self) -> int | None:
        """When the next timer elapses, on the monotonic clock; None if no timer is set."""
        return self._core.timers.next_ms()

    def handle_timer(self, now: Moment) -> Effects:
        """Handle one timer that has elapsed; call again until `next_timer_ms` is later than now."""
        key = self._core.timers.pop_due(now.monotonic_ms)
        if key is None:
            return []
        kind, transactional_id = key
        if kind is Kind.MARKERS:
            return markers.proceed(self._core, transactional_id, now)
        if kind is Kind.TIMEOUTS:
            return timeouts.abort_timed_out(self._core, now)
        return expiry.expire(self._core, self._expiry_clock, now)

    # -- the log -----------------------------------------------------------------------------------------------

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,  # noqa: ARG002 - only records of groups depend on it
        *,
        producer_id: int = NO_PRODUCER_ID,  # noqa: ARG002 - the same
        now: Moment | None = None,
    ) -> None:
        """Apply one record of the log. Pass the present time only for a record that was just appended.

        Raises DecodeError for a record of a known type that cannot be decoded.
        """
        match decode_record(key, value):
            case TransactionLogKey() as name, TransactionLogValue() as row:
                self._core.put(name.transactional_id, metadata_of(row), now)
            case TransactionLogKey() as name, None:
                self._core.remove(name.transactional_id)
            case _:
                self.skipped_records += 1

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Do nothing: no record of this log is part of a transaction."""

    def loaded(self, now: Moment) -> Effects:
        """Start serving requests after the log was replayed; markers of decided transactions are written again."""
        core = self._core
        timeouts.schedule(core, now)
        expiry.schedule(core, now)
        self._expiry_clock.was_set(now)
        for transactional_id in core.open:
            core.expect_end(transactional_id, now)
        for transactional_id in core.completions:
            core.timers.set((Kind.MARKERS, transactional_id), now.monotonic_ms)
        return []

    def unload(self, error: ErrorCode, _now: Moment) -> Effects:
        """Answer waiting requests with `error`, because this broker no longer leads the partition."""
        core = self._core
        calls = [follow_up.call for follow_up in core.allocations.values()]
        for key in (TIMEOUTS, EXPIRY, *((Kind.MARKERS, name) for name in core.completions)):
            core.timers.cancel(key)
        return [refuse(call, error) for call in calls if call is not None]

    # -- for tests ---------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        core = self._core
        assert not core.in_flight, "the outcome of an append was not reported"
        assert core.pending == {follow_up.transactional_id for follow_up in core.allocations.values()}
        assert core.completions.keys() == {n for n, m in core.transactions.items() if m.state in PREPARED}
        assert core.open == {n for n, m in core.transactions.items() if m.state is State.ONGOING}
        sent = {row.transactional_id for row in core.sent.values()}
        for name, metadata in core.transactions.items():
            assert 0 <= metadata.producer_epoch <= LARGEST_EPOCH, f"{name}: epoch {metadata.producer_epoch}"
            completion = core.completions.get(name)
            if completion is not None:
                assert completion.unwritten <= metadata.partitions
                waits = name in sent or completion.superseded or core.timers.deadline((Kind.MARKERS, name)) is not None
                assert waits, f"{name}: its markers are never written"
            if metadata.state is State.ONGOING and metadata.timeout_ms != NO_TIMEOUT_MS and name not in core.pending:
                assert core.timeouts.deadline(name) is not None, f"{name}: the transaction never times out"
            if metadata.state in IDLE:
                assert not metadata.partitions, f"{name} has partitions in state {metadata.state.title}"
                if name not in core.pending:
                    assert core.expiries.deadline(name) is not None, f"{name} never expires"
