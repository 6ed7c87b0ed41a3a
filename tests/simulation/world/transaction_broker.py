"""A broker with one transaction coordinator and partitions of data, under faults that a seed chooses.

The coordinator's appends become committed a little later. A crash cuts off a part of the uncommitted records, and a
later coordinator loads the rest. Replies and markers leave the broker only once everything appended before is
committed. Markers may fail, arrive late, also from an earlier coordinator, or arrive without an answer. The log's
`ProducerState` is the state of the producers in a partition.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Effects
from ottla.coordinators.transaction import (
    AddPartitions,
    AllocateProducerId,
    Append,
    Appended,
    Call,
    MarkersWritten,
    Moment,
    ProducerIdAllocated,
    Reply,
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from ottla.coordinators.transaction.errors import error_response
from ottla.coordinators.transaction.records import metadata_of, record_of
from ottla.coordinators.transaction.states import MOVES, State
from ottla.log.producer_state import Origin, ProducerState
from ottla.log.transaction_marker import Marker, TransactionEnd
from ottla.protocol.transaction_records import TransactionLogKey, TransactionLogValue, decode_record
from ottla.records import BatchHeader
from ottla.records.batch import TRANSACTIONAL
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.disk import SimulatedDisk

PARTITIONS = tuple((topic, index) for topic in ("a", "b") for index in range(2))
APPEND_ERRORS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)
MARKER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
EPOCH_BUMP = 2


class DataPartition:
    """The producers of a partition, and the transactions in it."""

    def __init__(self, name: tuple[str, int]) -> None:
        self.name = name
        self.producers = ProducerState(SimulatedDisk(), "/p", expiration_ms=1 << 40)
        self.tags: dict[int, int] = {}
        """By producer id, the transaction whose data has no marker yet."""
        self.outcomes: dict[int, bool] = {}
        """Whether the data of each transaction was committed."""
        self._end = 0

    def is_open(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def write(self, producer_id: int, epoch: int, tag: int) -> ErrorCode:
        entry = self.producers.entries.get(producer_id)
        sequence = entry.last_sequence + 1 if entry is not None and entry.epoch == epoch else 0
        header = BatchHeader(0, 0, 0, 2, 0, TRANSACTIONAL, 0, 0, 0, producer_id, epoch, sequence, 1)
        error = self._append(b"", header, "client")
        if error is ErrorCode.NONE:
            assert self.tags.setdefault(producer_id, tag) == tag, f"transactions {self.tags} and {tag} are mixed"
            assert tag not in self.outcomes, f"data of transaction {tag} after its marker"
        return error

    def mark(self, marker: WriteMarkers) -> ErrorCode:
        end = TransactionEnd(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit,
            marker.transaction_version,
        )  # fmt: skip
        try:
            self.producers.check_end(end, self.name)
        except KafkaError as error:
            return ErrorCode(error.code)
        code = self._append(*end.encode(0), "coordinator")
        if code is ErrorCode.NONE and marker.producer_id in self.tags:
            self.outcomes[self.tags.pop(marker.producer_id)] = marker.commit
        return code

    def _append(self, batch: bytes | bytearray, header: BatchHeader, origin: Origin) -> ErrorCode:
        try:
            admitted = self.producers.admit(batch, header, origin, self.name)
        except KafkaError as error:
            return ErrorCode(error.code)
        self.producers.record(header, admitted if isinstance(admitted, Marker) else None, self._end, None)
        self._end += 1
        return ErrorCode.NONE


@dataclass
class Faults:
    """Probabilities of faults."""

    append: float = 0.02
    allocation: float = 0.2
    marker: float = 0.15
    lost_marker: float = 0.1
    message: float = 0.05


NO_FAULTS = Faults(0, 0, 0, 0, 0)


@dataclass
class TransactionBroker:
    """One coordinator that is reloaded after each crash, and the partitions."""

    clock: SimulatedClock
    random: random.Random
    config: TransactionConfig
    level: int
    log: list[tuple[bytes, bytes | None]]
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.partitions = {name: DataPartition(name) for name in PARTITIONS}
        self.committed_end = len(self.log)
        self.outward: deque[tuple[int, Reply | WriteMarkers]] = deque()
        self.next_producer_id = 1_000
        self.coordinator_epoch = -1
        self.is_loading = False
        self.on_reply: Callable[[Call, Any], None] = lambda _call, _response: None
        self.timer_ms: int | None = None
        self.crashes = 0
        self._load()

    # -- the coordinator -------------------------------------------------------------------------------------------

    def now(self) -> Moment:
        return Moment(self.clock.monotonic_ms(), self.clock.wall_ms())

    def new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, 0, self.coordinator_epoch, lambda: self.level)

    def replayed(self) -> TransactionShard:
        shard = self.new_shard()
        for offset, (key, value) in enumerate(self.log):
            shard.replay(key, value, offset)
        return shard

    def crash(self) -> None:
        """Lose what is not committed, or a part of it; the log is loaded again a little later."""
        self.crashes += 1
        del self.log[self.random.randint(self.committed_end, len(self.log)) :]
        self.committed_end = len(self.log)
        self.outward.clear()
        self.is_loading = True
        self.clock.plan(self.random.randrange(200), self._load)

    def _load(self) -> None:
        self.is_loading = False
        self.coordinator_epoch += 1
        self.shard = self.replayed()
        self.obey(self.shard.loaded(self.now()))

    def submit(self, call: Call) -> None:
        if self.is_loading:
            self.on_reply(call, error_response(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self.obey(self.shard.step(call, self.now()))

    def obey(self, effects: Effects) -> None:
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            match effect:
                case Append():
                    pending.extendleft(reversed(self._append(effect)))
                case Reply() | WriteMarkers():
                    self.outward.append((len(self.log), effect))
                case AllocateProducerId():
                    self._later(self.random.randrange(30), self._allocate, effect)
        self.shard.validate()
        self._arm()
        end, shard = len(self.log), self.shard
        self.clock.plan(self.random.choice((0, 0, 5, 40)), lambda: self._commit(end, shard))

    def _append(self, append: Append) -> Effects:
        base, error = len(self.log), ErrorCode.NONE
        if self.random.random() < self.faults.append:
            error = self.random.choice(APPEND_ERRORS)
        else:
            for record in append.records:
                self._check_move(*record)
            self.log.extend(append.records)
        return self.shard.handle_appended(Appended(append.id, base, error), self.now())

    def _commit(self, end: int, shard: TransactionShard) -> None:
        if shard is not self.shard or self.is_loading:
            return
        self.committed_end = max(self.committed_end, end)
        while self.outward and self.outward[0][0] <= self.committed_end:
            effect = self.outward.popleft()[1]
            if isinstance(effect, Reply):
                self.on_reply(effect.call, effect.response)
            else:
                self._send_markers(effect)

    def _later(self, delay_ms: int, report: Callable[[Any], Effects], effect: object) -> None:
        """Report an outcome to the shard that waits for it; a crash loses the outcome."""
        shard = self.shard

        def event() -> None:
            if self.shard is shard and not self.is_loading:
                self.obey(report(effect))

        self.clock.plan(delay_ms, event)

    def _allocate(self, effect: AllocateProducerId) -> Effects:
        if self.random.random() < self.faults.allocation:
            event = ProducerIdAllocated(effect.id, -1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self.next_producer_id += 1
            event = ProducerIdAllocated(effect.id, self.next_producer_id)
        return self.shard.handle_producer_id(event, self.now())

    def _send_markers(self, effect: WriteMarkers) -> None:
        """Write the markers a little later, even if the coordinator crashes meanwhile."""
        shard, delay_ms = self.shard, self.random.choice((0, 1, 10, 100, 1_000))

        def event() -> None:
            results = {}
            for partition in effect.partitions:
                error = self._mark(partition, effect)
                if error is not None:
                    results[partition] = error
            if self.shard is shard and not self.is_loading:
                self.obey(shard.handle_markers(MarkersWritten(effect.id, results), self.now()))

        self.clock.plan(delay_ms, event)

    def _mark(self, partition: tuple[str, int], effect: WriteMarkers) -> ErrorCode | None:
        if self.random.random() < self.faults.marker:
            return self.random.choice(MARKER_ERRORS)
        error = self.partitions[partition].mark(effect)
        return None if self.random.random() < self.faults.lost_marker else error

    def _arm(self) -> None:
        next_ms = self.shard.next_timer_ms()
        if next_ms is None or (self.timer_ms is not None and self.timer_ms <= next_ms):
            return
        self.timer_ms = next_ms
        self.clock.plan(max(next_ms - self.clock.now_ms, 0), self._elapse)

    def _elapse(self) -> None:
        self.timer_ms = None
        while not self.is_loading:
            next_ms = self.shard.next_timer_ms()
            if next_ms is None or next_ms > self.clock.now_ms:
                self._arm()
                return
            self.obey(self.shard.handle_timer(self.now()))

    # -- produce ---------------------------------------------------------------------------------------------------

    def produce(self, call: Call) -> None:
        """Write data, after the coordinator has verified or added the partition (KIP-890)."""
        request: Produce = call.request  # type: ignore[assignment]
        partition = self.partitions[request.partition]
        if partition.is_open(request.producer_id, request.epoch):
            self.on_reply(call, partition.write(request.producer_id, request.epoch, request.tag))
            return
        version = EPOCH_BUMP if request.adds_partition else 0
        question = AddPartitions(
            request.transactional_id,
            request.producer_id,
            request.epoch,
            (request.partition,),
            not request.adds_partition,
            version,
        )
        verification = Verification(call, partition.producers.markers)
        self.submit(Call(question, token=verification))

    def verified(self, verification: Verification, error: ErrorCode) -> None:
        """Write the data unless a marker was written since the verification began."""
        call = verification.call
        request: Produce = call.request  # type: ignore[assignment]
        partition = self.partitions[request.partition]
        if error is ErrorCode.NONE:
            unchanged = partition.producers.markers == verification.markers
            error = ErrorCode.INVALID_TXN_STATE
            if unchanged:
                error = partition.write(request.producer_id, request.epoch, request.tag)
        self.on_reply(call, error)

    # -- invariants ------------------------------------------------------------------------------------------------

    def _check_move(self, key: bytes, value: bytes | None) -> None:
        """Epochs never go down, and each record is a legal move from the previous one."""
        decoded = decode_record(key, value)
        assert decoded is not None
        name, row = decoded
        assert isinstance(name, TransactionLogKey)
        before = self.shard.transactions.get(name.transactional_id)
        if before is None or row is None:
            assert row is None or before is None
            assert before is None or State.DEAD in MOVES[before.state]
            return
        assert isinstance(row, TransactionLogValue)
        after = metadata_of(row)
        assert after.state in MOVES[before.state]
        assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)

    def check_replay(self) -> None:
        """A shard that replays the log has the state of the live shard."""
        if self.is_loading:
            return
        versions = {key: value[1] for key, value in self.log if value is not None}
        live, replayed = (
            {
                record
                for name, metadata in shard.transactions.items()
                for record in (record_of(name, metadata, 0), record_of(name, metadata, 1))
                if record[1] is not None and record[1][1] <= versions[record[0]]
            }
            for shard in (self.shard, self.replayed())
        )
        assert live == replayed


@dataclass(frozen=True)
class Produce:
    """Data of the transaction `tag` for one partition."""

    transactional_id: str
    producer_id: int
    epoch: int
    partition: tuple[str, int]
    tag: int
    adds_partition: bool
    """Whether the broker adds the partition, as since version 12 of Produce."""


@dataclass(frozen=True)
class Verification:
    """A Produce that waits for the coordinator, and the number of markers before."""

    call: Call
    markers: int
