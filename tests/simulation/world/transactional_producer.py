"""The simulated cluster with a transaction coordinator around the core of a transactional producer.

The coordinator follows Kafka's rules: one open transaction, epochs, markers that are written a little after the
response to EndTxn. Brokers verify with it that a partition is part of the open transaction (protocol 1), or add it
(protocol 2). The network loses and delays requests and responses as in `producers.World`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.clients.errors import ConnectionLost, RequestTimedOut
from ottla.clients.offsets import OffsetAndMetadata
from ottla.clients.producer.effects import AskCoordinator, Effect, Outcome
from ottla.clients.producer.transaction_requests import OffsetsOfGroup
from ottla.clients.producer.transactions import Call
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, Uuid
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
from tests.simulation.world.producers import LATENCY_MS, World

PRODUCER_ID = 500
INPUT = TopicPartition("in", 0)


@dataclass
class Coordinator:
    """The state of the transactional id, and what it did."""

    epoch: int = -1
    is_open: bool = False
    ending: bool | None = None  # whether the transaction that is being completed commits
    last_end: bool | None = None
    partitions: set[int] = field(default_factory=set)
    has_group: bool = False
    pending_offset: int | None = None
    offset: int | None = None


class TransactionWorld(World):
    """Runs a transactional producer. `visible` has the records that read_committed returns, by partition."""

    def __init__(self, seed: int = 1, level: int = 2, partitions: int = 2, **settings: object) -> None:
        super().__init__(seed, partitions=partitions, nodes=2, transactional_id="x", **settings)
        self.level = level
        self.coordinator = Coordinator()
        self.open: dict[int, list[bytes | None]] = {p: [] for p in self.logs}
        self.visible: dict[int, list[bytes | None]] = {p: [] for p in self.logs}
        self.refuse_coordinator = 0.0
        self.marker_ms = 5

    # what a test does ---------------------------------------------------------------------------------------------

    def call(self, name: str) -> Call | None:
        """Make a call of the program; commit, abort and initialize return what to wait for."""
        made: Call | None = self.core.call(lambda transactions: getattr(transactions, name)())
        self.perform(self.core.step(self.now_ms))
        return made

    def send_offset(self, offset: int) -> Call:
        offsets = OffsetsOfGroup("g", -1, "", None, {INPUT: OffsetAndMetadata(offset)})
        made = self.core.call(lambda transactions: transactions.send_offsets(offsets))
        self.perform(self.core.step(self.now_ms))
        return made

    def finish(self, call: Call | None) -> None:
        assert call is not None
        self.run(until=lambda: call.done)

    # the other side -----------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AskCoordinator):
                self._ask(effect)
        super().perform(effects)

    def _ask(self, effect: AskCoordinator) -> None:
        request, chance = effect.request, self.random.random
        lost = ConnectionLost("the connection was lost")
        if chance() < self.lose_request:
            self.at(LATENCY_MS, lambda: self.core.coordinator_lost(lost, self.now_ms))
            return
        responses: list[Message] = []

        def arrive() -> list[Effect]:
            responses.append(self.respond(request))
            return []

        # A late request of protocol 1 may begin or end the next transaction: brokers cannot see that without KIP-890.
        # A late first request for an id fences the producer itself.
        is_first = isinstance(request, InitProducerIdRequest) and request.producer_id < 0
        if chance() < self.delay_answer and self.level >= 2 and not is_first:
            self.at(1000, lambda: self.core.coordinator_lost(RequestTimedOut("no answer"), self.now_ms))
            self.at(self.random.randrange(900, self.latest_arrival_ms), arrive)
            return
        self.at(LATENCY_MS, arrive)
        if chance() < self.lose_answer:
            self.at(2 * LATENCY_MS, lambda: self.core.coordinator_lost(lost, self.now_ms))
        else:
            self.at(2 * LATENCY_MS, lambda: self.core.coordinator_answered(responses[0], self.level, self.now_ms))

    def respond(self, request: Message) -> Message:
        """Return the coordinator's present answer, after it has changed its state."""
        code = ErrorCode.NOT_COORDINATOR if self.random.random() < self.refuse_coordinator else 0
        if isinstance(request, InitProducerIdRequest):
            return self._initialize(request, code)
        if isinstance(request, AddPartitionsToTxnRequest):
            (topic,) = request.v3_and_below_topics
            code = code or self._add(request.v3_and_below_producer_epoch, set(topic.partitions))
            rows = [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(topic.name, rows)]
            )
        if isinstance(request, AddOffsetsToTxnRequest):
            code = code or self._add(request.producer_epoch, set())
            self.coordinator.has_group |= not code
            return AddOffsetsToTxnResponse(error_code=code)
        if isinstance(request, TxnOffsetCommitRequest):
            return self._commit_offset(request, code)
        assert isinstance(request, EndTxnRequest)
        return self._end(request, code)

    def _initialize(self, request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
        it = self.coordinator
        if code:
            pass
        elif request.producer_id >= 0 and request.producer_epoch not in {it.epoch, it.epoch - 1}:
            code = ErrorCode.PRODUCER_FENCED
        elif it.ending is not None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif it.is_open:
            it.epoch += 1
            self._complete(commit=False)
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif request.producer_id < 0 or request.producer_epoch == it.epoch:
            it.epoch += 1
        return InitProducerIdResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=it.epoch)

    def _add(self, epoch: int, partitions: set[int]) -> int:
        it = self.coordinator
        if epoch != it.epoch:
            return ErrorCode.PRODUCER_FENCED
        if it.ending is not None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        it.is_open = True
        it.partitions |= partitions
        return 0

    def _commit_offset(self, request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
        it = self.coordinator
        if not code and self.level >= 2:
            code = self._add(request.producer_epoch, set())
            it.has_group |= not code
        elif not code and not (it.has_group and it.is_open and request.producer_epoch == it.epoch):
            code = ErrorCode.INVALID_TXN_STATE
        ((row,),) = (topic.partitions for topic in request.topics)
        if not code:
            it.pending_offset = row.committed_offset
        done = TxnOffsetCommitResponsePartition(row.partition_index, code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("in", [done])])

    def _end(self, request: EndTxnRequest, code: int) -> EndTxnResponse:
        it = self.coordinator
        is_repeated = self.level >= 2 and request.producer_epoch == it.epoch - 1
        if code:
            pass
        elif is_repeated or (self.level < 2 and not it.is_open and request.producer_epoch == it.epoch):
            if it.is_open or it.last_end is not request.committed:
                code = ErrorCode.INVALID_TXN_STATE
            elif it.ending is not None:
                code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif request.producer_epoch != it.epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif not it.is_open:
            if self.level < 2 or request.committed:
                code = ErrorCode.INVALID_TXN_STATE
            else:
                it.epoch += 1
                it.last_end = False
        else:
            it.epoch += self.level >= 2
            self._complete(commit=request.committed)
        if self.level < 2:
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=it.epoch)

    def _complete(self, *, commit: bool) -> None:
        it = self.coordinator
        it.is_open, it.ending, it.last_end = False, commit, commit
        partitions, it.partitions = it.partitions, set()

        def write_markers() -> list[Effect]:
            it.ending = None
            for partition in partitions:
                state = self.logs[partition].producers.get(PRODUCER_ID)
                if state is not None and state.epoch < it.epoch:
                    state.epoch, state.last_sequence, state.recent = it.epoch, -1, []
                if commit:
                    self.visible[partition] += self.open[partition]
                self.open[partition] = []
            if commit and it.pending_offset is not None:
                it.offset = it.pending_offset
            it.pending_offset, it.has_group = None, False
            return []

        self.at(self.random.randrange(1, 4 * self.marker_ms), write_markers)

    def _append(
        self, node: int, topic_id: Uuid, partition: int, size: int, values: list[bytes | None], *producer: int
    ) -> Outcome:
        it, epoch = self.coordinator, producer[1]
        log = self.logs[partition]
        if epoch != it.epoch:
            return Outcome(ErrorCode.INVALID_PRODUCER_EPOCH)
        if partition not in it.partitions:
            if self.level < 2:
                return Outcome(ErrorCode.INVALID_TXN_STATE)
            code = self._add(epoch, {partition})
            if code:
                return Outcome(code)
        before = len(log.values)
        outcome = super()._append(node, topic_id, partition, size, values, *producer)
        self.open[partition] += log.values[before:]
        return outcome
