"""The transactions of one producer, without I/O. KIP-98, KIP-360 (recovery), KIP-447, KIP-890 (both protocols).

Calls of the program and responses of coordinators come in, and `next_request` returns what to send. At most one request
is in flight. The core of the producer (`core`) calls this under its lock:

1. it appends and sends batches only while `refusal` and `may_send` allow that;
2. it reports batches that failed (`batch_failed`), and drops those that wait while `drops_batches` is true;
3. it asks for `next_request` in each step, and reports each response once, with `answered` or `lost`.

Promises: EndTxn is sent only after every batch and every offset of the transaction has its outcome, and it commits only
if all of them are acknowledged. Nothing of a transaction is sent after its EndTxn. A commit without a response is
repeated until there is one: it is never turned into an abort. A new transaction begins only after the previous one has
its outcome.

Protocol 1 registers partitions and groups with the coordinator before they are used. With protocol 2 (the finalized
feature transaction.version is at least 2) the brokers do that, and EndTxn returns a new epoch for each transaction. The
protocol of a transaction is fixed when it begins: `is_v2` changes only between two transactions. After a failure, and
after the switch to protocol 2, the epoch is raised before the next transaction, so that a late request of the old one
is refused.

Omitted: two-phase commit (KIP-939), which Kafka 4.3 does not serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.clients.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    Closed,
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
from ottla.clients.producer.effects import NO_ID, AskCoordinator
from ottla.clients.producer.metadata import FOREVER_MS
from ottla.clients.producer.transaction_requests import (
    Exchange,
    Identity,
    OffsetsOfGroup,
    Registered,
    Verdict,
    add_group,
    add_partitions,
    commit_offsets,
    end_transaction,
    initialize,
    judge,
    unwelcome,
)
from ottla.clients.producer.transaction_states import ADVICE, ENDING, MOVES, NAMES, Event, State
from ottla.common.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse

FIRST_V2 = 2  # of the feature transaction.version


class Call:
    """A call of the program that waits for coordinators: done once, with an error or without."""

    __slots__ = ("done", "error", "event", "waiters")

    def __init__(self, event: Event | None = None) -> None:
        self.event = event  # None for offsets
        self.done = False
        self.error: ClientError | None = None
        self.waiters: list[Callable[[], object]] = []


class Transactions:
    """The state machine of one transactional id."""

    def __init__(self, transactional_id: str, timeout_ms: int, backoff_ms: Callable[[int], int]) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: ClientError | None = None  # in ABORTABLE_ERROR and FATAL_ERROR
        self.identity = Identity(transactional_id, NO_ID, NO_ID)
        self.is_v2 = False
        self.wakers: list[Callable[[], object]] = []  # of calls that are done; the core hands them to the sender
        self._timeout_ms = timeout_ms
        self._level = 0  # the finalized transaction.version that a broker reported last
        self._known = Registered()
        self._offsets: deque[tuple[OffsetsOfGroup, Call]] = deque()
        self._call: Call | None = None  # init, commit or abort
        self._needs_new_epoch = False
        self._exchange = Exchange(backoff_ms)

    @property
    def is_open(self) -> bool:
        return self.state is State.IN_TRANSACTION or self.state is State.ABORTABLE_ERROR

    # --- calls of the program -----------------------------------------------------------------------------------

    def initialize(self, transactional_id: str | None = None) -> Call:
        """Request a producer id; ends what another producer with this transactional id left open.

        Between two transactions the request does not name the present id, so that it succeeds also if another producer
        has fenced this one.
        """
        if self.state in {State.READY, State.UNINITIALIZED}:
            self.transactional_id = transactional_id or self.transactional_id
            self.identity = Identity(self.transactional_id, NO_ID, NO_ID)
        elif transactional_id not in {None, self.transactional_id}:
            raise self._refusal(NAMES[Event.INITIALIZE])
        return self._begin_call(Event.INITIALIZE)

    def leave(self) -> Identity | None:
        """Forget the producer id between two transactions, and return it for another producer. Raises as `begin`.

        None with protocol 1: the epoch stays the same there, so that sequence numbers would have to continue.
        """
        self._check(Event.LEFT)
        self._move(Event.LEFT)
        left, self.identity = self.identity, Identity(self.transactional_id, NO_ID, NO_ID)
        return left if self.is_v2 else None

    def continue_as(self, left: Identity) -> None:
        """Continue with the identity that `leave` of another producer returned. Raises as `begin`."""
        self._check(Event.CONTINUED)
        self._move(Event.CONTINUED)
        self.transactional_id = left.transactional_id
        self.identity = left
        self.is_v2, self._level = True, max(self._level, FIRST_V2)

    def begin(self) -> None:
        self._check(Event.BEGIN)
        self._move(Event.BEGIN)

    def commit(self, offsets: OffsetsOfGroup | None = None) -> Call:
        """Commit as soon as every record and offset is acknowledged; `offsets` are committed after the records."""
        is_new = self._call is None
        call = self._begin_call(Event.COMMIT)
        if is_new and offsets is not None:
            self._offsets.append((offsets, Call()))
        return call

    def abort(self) -> Call:
        """Abort as soon as nothing is in flight any more; offsets that were not sent are dropped."""
        call = self._begin_call(Event.ABORT)
        self._known.wanted.clear()
        self._drop_offsets(TransactionAborted("The offsets were not committed: the transaction was aborted"))
        return call

    def close(self) -> Call | None:
        """Abort an open transaction; the abort or commit to wait for before the producer closes, if any."""
        if self.is_open:
            return self.abort()
        return self._call if self.state in ENDING else None

    def send_offsets(self, offsets: OffsetsOfGroup) -> Call:
        self._check_open("send_offsets_to_transaction()")
        call = Call()
        self._offsets.append((offsets, call))
        return call

    def check_send(self) -> None:
        self._check_open("send()")

    def _begin_call(self, event: Event) -> Call:
        """The pending call if it is the same one, which timed out; otherwise a new one."""
        if self._call is not None and self._call.event is event:
            return self._call
        self._check(event)
        self._move(event)
        self._call = Call(event)
        self._exchange.failures = 0
        return self._call

    def _check(self, event: Event) -> None:
        if (self.state, event) not in MOVES:
            raise self._refusal(NAMES[event])

    def _check_open(self, name: str) -> None:
        if self.state is not State.IN_TRANSACTION:
            raise self._refusal(name)

    def _refusal(self, name: str) -> ClientError:
        """Why the call `name` is not possible in this state, and what to do."""
        cause = self.error
        told: ClientError
        if self.state is State.ABORTABLE_ERROR:
            told = TransactionFailed(
                f"The transaction of {self.transactional_id!r} cannot be committed: {cause}. Call abort_transaction(), "
                "then repeat the transaction"
            )
        elif isinstance(cause, (ProducerFenced, Closed)):
            told = type(cause)(str(cause))
        elif self.state is State.FATAL_ERROR:
            told = ProducerUnusable(
                f"The producer of {self.transactional_id!r} cannot continue: {cause}. Close it, and create another one"
            )
        else:
            pending = None if self._call is None or self._call.event is None else NAMES[self._call.event]
            advice = ADVICE.get(self.state, f"{pending} has not ended, call it again to wait for it")
            return InvalidTransactionState(f"{name} is not possible for {self.transactional_id!r}: {advice}")
        told.__cause__ = cause
        return told

    # --- batches ------------------------------------------------------------------------------------------------

    @property
    def drops_batches(self) -> bool:
        """Whether batches that wait must fail instead of being sent."""
        return self.state in {State.ABORTABLE_ERROR, State.ABORTING, State.FATAL_ERROR}

    @property
    def is_committing(self) -> bool:
        return self.state is State.COMMITTING

    def drop_reason(self) -> TransactionAborted:
        why = f"its transaction failed: {self.error}" if self.error is not None else "its transaction was aborted"
        dropped = TransactionAborted(f"The record was not sent or not repeated, because {why}")
        dropped.__cause__ = self.error
        return dropped

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether batches of the partition may be sent. With protocol 1 it is registered first."""
        if self.state is not State.IN_TRANSACTION and self.state is not State.COMMITTING:
            return False
        key = (topic, partition)
        if key in self._known.partitions:
            return True
        if self.is_v2:
            self._known.partitions.add(key)
            self._known.is_started = True
            return True
        self._known.wanted.add(key)
        return False

    def batch_failed(self, error: Exception, *, was_sent: bool) -> None:
        """A batch of the transaction failed or was dropped; if it was sent, its sequence numbers may be used."""
        if was_sent or not isinstance(error, TransactionAborted):
            self._needs_new_epoch = True
        if isinstance(error, TransactionAborted):
            return
        if isinstance(error, ProducerFenced):
            self._fence()
        elif isinstance(error, (TransactionalIdAuthorizationFailed, UnsupportedByBroker)):
            self.stop(error)
        elif self.state in {State.IN_TRANSACTION, *ENDING, State.ABORTABLE_ERROR}:
            self._fail(error if isinstance(error, ClientError) else ClientError(str(error)))

    # --- requests -----------------------------------------------------------------------------------------------

    def next_ms(self) -> int:
        """When `next_request` may have something to send even if nothing happens; FOREVER_MS for never."""
        waits = self.state in {State.INITIALIZING, *ENDING} or self._known.wanted or self._offsets
        return self._exchange.not_before_ms if waits and self._exchange.sent is None else FOREVER_MS

    def next_request(self, now_ms: int, *, is_drained: bool) -> AskCoordinator | None:
        """The request to send now. `is_drained`: no batch waits, and no request with batches is in flight."""
        if not self._exchange.may_send(now_ms):
            return None
        request = self._due(is_drained=is_drained)
        if request is not None:
            self._exchange.begin(request)
        return request

    def _due(self, *, is_drained: bool) -> AskCoordinator | None:
        state = self.state
        if state is State.INITIALIZING:
            return initialize(self.identity, self._timeout_ms)
        if state is State.ABORTING and self._exchange.unconfirmed is not None:
            return self._exchange.unconfirmed  # its response says whether the coordinator knows the transaction
        if state is State.IN_TRANSACTION or state is State.COMMITTING:
            if self._known.wanted:
                return add_partitions(self.identity, self._known.wanted)
            if self._offsets and (is_drained or state is State.IN_TRANSACTION):
                return self._next_offsets()
        if state not in ENDING or not is_drained:
            return None
        if self._known.is_started and not self._has_lost_identity():
            return end_transaction(self.identity, is_commit=state is State.COMMITTING, is_v2=self.is_v2)
        self._end()
        return initialize(self.identity, self._timeout_ms) if self.state is State.INITIALIZING else None

    def _has_lost_identity(self) -> bool:
        """Whether the coordinator does not know the producer any more: EndTxn would be refused (KIP-360)."""
        return isinstance(self.error, BrokerError) and self.error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _next_offsets(self) -> AskCoordinator:
        offsets = self._offsets[0][0]
        if self.is_v2:
            self._known.is_started = True
        elif offsets.group_id not in self._known.groups:
            return add_group(self.identity, offsets.group_id)
        return commit_offsets(self.identity, offsets, is_v2=self.is_v2)

    # --- responses ----------------------------------------------------------------------------------------------

    def learn(self, level: int) -> None:
        """The finalized level of the feature transaction.version, as the coordinator reported it last."""
        self._level = level

    def lost(self, error: ClientError, now_ms: int) -> None:
        request = self._exchange.take()
        if self.state is State.FATAL_ERROR:
            return
        may_return = isinstance(error, BrokerUnavailable) and self.identity.producer_id != NO_ID
        if error.retriable or may_return:
            if request.is_registration:
                self._exchange.unconfirmed = request
            self._exchange.retry(0, now_ms, has_moved=True)
        elif isinstance(error, GroupAuthorizationFailed):
            self._fail(error)
        else:
            self._stop_or_refuse(error)

    def answered(self, response: Message, now_ms: int) -> None:
        request = self._exchange.take()
        if self.state is State.FATAL_ERROR:
            return
        self._exchange.not_before_ms = now_ms + int(getattr(response, "throttle_time_ms", 0))
        verdict, code, what = judge(response)
        if request.is_registration and verdict not in {Verdict.RETRY, Verdict.MOVED}:
            self._exchange.unconfirmed = None
        if verdict is Verdict.DONE:
            self._exchange.failures = 0
            self._succeeded(request, response)
        elif verdict in {Verdict.RETRY, Verdict.MOVED}:
            self._exchange.retry(code, now_ms, has_moved=verdict is Verdict.MOVED)
        elif verdict is Verdict.FENCED:
            self._fence()
        elif verdict is Verdict.ABORT and not self._has_failed_to_abort(response, code):
            self._fail(error_for(code, unwelcome(code, what)))
        else:
            self._stop_or_refuse(error_for(code, unwelcome(code, what)))

    def _has_failed_to_abort(self, response: Message, code: int) -> bool:
        """Whether an abort was refused in a way that a new epoch would not solve either."""
        is_refused = isinstance(response, EndTxnResponse) and self.state is State.ABORTING
        return is_refused and code != ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _succeeded(self, request: AskCoordinator, response: Message) -> None:
        if isinstance(response, InitProducerIdResponse):
            self.identity = Identity(self.transactional_id, response.producer_id, response.producer_epoch)
            self.is_v2 = self._level >= FIRST_V2
            self._needs_new_epoch = False
            self._move(Event.INITIALIZED)
            self._complete(None)
        elif isinstance(response, EndTxnResponse):
            if response.producer_id >= 0:
                self.identity = Identity(self.transactional_id, response.producer_id, response.producer_epoch)
                self._needs_new_epoch = False
            self._end()
        elif request.partitions:
            self._known.is_started = True
            self._known.partitions |= request.partitions
            self._known.wanted -= request.partitions
        elif request.is_registration:
            self._known.is_started = True
            self._known.groups.add(request.group_id)
        elif self._offsets and self._offsets[0][0] is request.offsets:
            self._wake(self._offsets.popleft()[1], None)

    def _end(self) -> None:
        """The transaction has its outcome at the coordinator, or the coordinator never heard of it."""
        is_now_v2 = self._level >= FIRST_V2
        needs_new_epoch = self._needs_new_epoch or self._has_lost_identity() or (is_now_v2 and not self.is_v2)
        self._known = Registered()
        self._exchange.unconfirmed = None
        self.error = None
        if needs_new_epoch:
            self._move(Event.ENDED_FOR_NEW_EPOCH)
            return
        self.is_v2 = is_now_v2
        self._move(Event.ENDED)
        self._complete(None)

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _move(self, event: Event) -> None:
        self.state = MOVES[self.state, event]

    def _fail(self, error: ClientError) -> None:
        """The transaction can only be aborted from now on; the first error is reported."""
        if self.state is State.INITIALIZING or self.state is State.READY:
            self._stop_or_refuse(error)
            return
        if self.error is None or self.state is State.ABORTING:
            self.error = error
        self._needs_new_epoch = True
        self._move(Event.FAILED)
        self._known.wanted.clear()
        if self.state is State.ABORTABLE_ERROR:
            told = self._refusal("commit_transaction()")
            self._drop_offsets(told)
            self._complete(told)

    def _fence(self) -> None:
        self.stop(ProducerFenced(
            f"Another producer with the transactional id {self.transactional_id!r} was initialized, or the transaction "
            f"took longer than transaction.timeout.ms ({self._timeout_ms}): close this producer"
        ))  # fmt: skip

    def _stop_or_refuse(self, error: ClientError) -> None:
        """Let the program call `init_transactions` again if it has no producer id yet; otherwise stop."""
        if self.state is State.INITIALIZING and self.identity.producer_id == NO_ID:
            self._move(Event.REFUSED)
            self._complete(error)
        else:
            self.stop(error)

    def stop(self, error: ClientError) -> None:
        """Fail every pending and later call. The first error stays."""
        if self.state is State.FATAL_ERROR:
            return
        self._move(Event.STOPPED)
        self.error = error
        told = self._refusal("")
        self._drop_offsets(told)
        self._complete(told)

    def _drop_offsets(self, error: ClientError) -> None:
        while self._offsets:
            self._wake(self._offsets.popleft()[1], error)

    def _complete(self, error: ClientError | None) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._wake(call, error)

    def _wake(self, call: Call, error: ClientError | None) -> None:
        call.done = True
        call.error = error
        waiters, call.waiters = call.waiters, []
        self.wakers += waiters

    def take_wakers(self) -> list[Callable[[], object]]:
        """Return what wakes the waiters of calls that are done. Each may be called only once."""
        wakers, self.wakers = self.wakers, []
        return wakers

    def validate(self) -> None:
        assert (self.error is not None) == (self.state in {State.ABORTABLE_ERROR, State.FATAL_ERROR}) or (
            self.state is State.ABORTING
        ), f"{self.state}: {self.error}"
        pending = {State.INITIALIZING, *ENDING}
        assert (self._call is not None) == (self.state in pending), f"{self.state}: call {self._call}"
        assert not self._known.wanted or self.state in {State.IN_TRANSACTION, State.COMMITTING}
        assert not self._offsets or self.state in {State.IN_TRANSACTION, State.COMMITTING}
        assert not (self._known.partitions and self.state in {State.READY, State.UNINITIALIZED, State.INITIALIZING})
