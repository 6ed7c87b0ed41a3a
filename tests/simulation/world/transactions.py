"""A transaction coordinator's shard without a broker: an in-memory log, a manual clock, and responses by call.

`validate` runs after every event, so that a test fails at the event that breaks an invariant.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Effect, Effects
from ottla.coordinators.transaction import (
    AddPartitions,
    AllocateProducerId,
    Append,
    Appended,
    Call,
    LogLine,
    MarkersWritten,
    Moment,
    ProducerIdAllocated,
    Reply,
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

WALL_START_MS = 1_700_000_000_000
TRANSACTIONAL_ID = "t"
FIRST_PRODUCER_ID = 1_000


class TransactionDriver:
    """Obeys one shard's effects. Times in milliseconds since the start."""

    def __init__(self, config: TransactionConfig | None = None, level: int = 2) -> None:
        self.config = config or TransactionConfig()
        self.level = level
        """The finalized level of the feature `transaction.version`."""
        self.now_ms = 0
        self.wall_ahead_ms = 0
        """The change of the wall clock."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.append_error = ErrorCode.NONE
        """If set, appends fail with it."""
        self.allocation_error = ErrorCode.NONE
        """If set, allocations of producer ids fail with it."""
        self.marker_errors: dict[tuple[str, int], ErrorCode] = {}
        """Errors of markers, by partition."""
        self.holds_allocations = self.holds_markers = False
        """Whether the outcomes wait for `release`."""
        self.held: list[AllocateProducerId | WriteMarkers] = []
        self.markers: list[WriteMarkers] = []
        """All markers that were to be written."""
        self.answers: dict[Call, Any] = {}
        self.log_lines: list[str] = []
        self.next_producer_id = FIRST_PRODUCER_ID
        self.coordinator_epoch = 0
        self.shard = self._new_shard()
        self.obey(self.shard.loaded(self.now()))

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, 7, self.coordinator_epoch, lambda: self.level)

    def now(self) -> Moment:
        return Moment(self.now_ms, WALL_START_MS + self.now_ms + self.wall_ahead_ms)

    # -- effects -----------------------------------------------------------------------------------------------

    def obey(self, effects: Effects) -> None:
        """Append, replay and answer in the order of the effects."""
        pending = deque(effects)
        while pending:
            pending.extendleft(reversed(self.execute(pending.popleft())))
        self.shard.validate()

    def execute(self, effect: Effect) -> Effects:
        """Execute one effect; returns the effects that follow from its outcome."""
        match effect:
            case Append():
                base = len(self.log)
                if self.append_error is ErrorCode.NONE:
                    self.log.extend(effect.records)
                return self.shard.handle_appended(Appended(effect.id, base, self.append_error), self.now())
            case Reply():
                assert effect.call not in self.answers, "answered twice"
                self.answers[effect.call] = effect.response
            case LogLine():
                self.log_lines.append(effect.message % effect.arguments)
            case AllocateProducerId():
                if self.holds_allocations:
                    self.held.append(effect)
                    return []
                return self._allocate(effect)
            case WriteMarkers():
                self.markers.append(effect)
                if self.holds_markers:
                    self.held.append(effect)
                    return []
                return self._write(effect)
        return []

    def _allocate(self, effect: AllocateProducerId) -> Effects:
        if self.allocation_error is ErrorCode.NONE:
            self.next_producer_id += 1
        event = ProducerIdAllocated(effect.id, self.next_producer_id - 1, self.allocation_error)
        return self.shard.handle_producer_id(event, self.now())

    def _write(self, effect: WriteMarkers) -> Effects:
        results = {row: self.marker_errors.get(row, ErrorCode.NONE) for row in effect.partitions}
        return self.shard.handle_markers(MarkersWritten(effect.id, results), self.now())

    def release(self) -> None:
        """Report the outcomes that were held."""
        self.holds_allocations = self.holds_markers = False
        held, self.held = self.held, []
        for effect in held:
            self.obey(self._allocate(effect) if isinstance(effect, AllocateProducerId) else self._write(effect))

    # -- time and restarts -------------------------------------------------------------------------------------

    def advance(self, duration_ms: int) -> None:
        """Advance the time; timers run in their order."""
        end_ms = self.now_ms + duration_ms
        while True:
            next_ms = self.shard.next_timer_ms()
            if next_ms is None or next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            self.obey(self.shard.handle_timer(self.now()))
        self.now_ms = end_ms

    def replayed(self) -> TransactionShard:
        """A new shard that has replayed the log."""
        shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            shard.replay(key, value, offset)
        return shard

    def restart(self) -> None:
        """Restart the coordinator: what waited is lost, and the log is replayed."""
        self.held.clear()
        self.coordinator_epoch += 1
        self.shard = self.replayed()
        self.obey(self.shard.loaded(self.now()))

    # -- requests ----------------------------------------------------------------------------------------------

    def send(self, request: object, version: int = 0, client_id: str = "") -> Call:
        """Send one request; its response appears in `answers`, immediately or later."""
        call = Call(request, version, client_id)
        self.obey(self.shard.step(call, self.now()))
        return call

    def ask(self, request: object, version: int = 0) -> Any:
        """Send one request that is answered immediately, and return the response."""
        return self.answers[self.send(request, version)]


class Producer:
    """One producer of a transactional id, from the coordinator's point of view.

    `version` is the version of its transactions: 2 ends them with EndTxn of version 5.
    """

    def __init__(
        self, driver: TransactionDriver, transactional_id: str = TRANSACTIONAL_ID, *, version: int = 2
    ) -> None:
        self.driver = driver
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = 60_000
        self.producer_id = self.epoch = -1

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def init_request(self, *, names_epoch: bool = False) -> InitProducerIdRequest:
        """An InitProducerId, as by a new producer or by one that continues after an error."""
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id if names_epoch else -1,
            producer_epoch=self.epoch if names_epoch else -1,
        )

    def init(self, *, names_epoch: bool = False, version: int = 5) -> ErrorCode:
        """Send InitProducerId, and take its id and epoch."""
        return self.initialized(self.driver.ask(self.init_request(names_epoch=names_epoch), version))

    def initialized(self, response: InitProducerIdResponse) -> ErrorCode:
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    def add_request(self, *partitions: tuple[str, int], verify: bool = False) -> AddPartitions:
        version = 2 if self.version == 2 and not verify else 0
        return AddPartitions(self.transactional_id, *self.identity, partitions, verify, version)

    def add(self, *partitions: tuple[str, int], version: int = 3) -> ErrorCode:
        """Add partitions; the one error that all have."""
        (error,) = set(self.driver.ask(self.add_request(*partitions), version).values())
        return error

    def verify(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
        return self.driver.ask(self.add_request(*partitions, verify=True))

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(self.transactional_id, *self.identity, commit)

    @property
    def end_version(self) -> int:
        return 5 if self.version == 2 else 3

    def end(self, *, commit: bool) -> ErrorCode:
        """Send EndTxn, and take the next epoch."""
        return self.ended(self.driver.ask(self.end_request(commit=commit), self.end_version))

    def ended(self, response: EndTxnResponse) -> ErrorCode:
        if response.error_code == ErrorCode.NONE and self.version == 2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode(response.error_code)

    def commit(self) -> ErrorCode:
        return self.end(commit=True)

    def abort(self) -> ErrorCode:
        return self.end(commit=False)

    def twin(self) -> Producer:
        """A producer with the same id and epoch: a copy that does not learn of later changes."""
        other = Producer(self.driver, self.transactional_id, version=self.version)
        other.timeout_ms, other.producer_id, other.epoch = self.timeout_ms, self.producer_id, self.epoch
        return other
