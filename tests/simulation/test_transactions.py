"""Transactions under a seed: producers of both versions, zombies, lost messages, crashes of the coordinator.

After every event the shard's own invariants hold (`validate`). Besides:

- a transaction whose commit was acknowledged is never aborted, and vice versa;
- the markers of one transaction all have the same outcome, and each of its records gets one;
- no data of a transaction is written after its marker, and no two transactions are mixed;
- producer ids and epochs never go down, and no two producers have the same producer id and epoch;
- a shard that replays the log has the state of the live shard;
- left alone, every transaction ends, and a new producer of each id can commit.

`OTTLA_SEEDS=5000 pytest tests/simulation/test_transactions.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.transaction import AddPartitions, Call, TransactionConfig
from ottla.coordinators.transaction.metadata import Metadata
from ottla.coordinators.transaction.records import record_of
from ottla.coordinators.transaction.states import COMPLETED, State
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.world.clock import WALL_START_MS, SimulatedClock
from tests.simulation.world.transaction_broker import (
    NO_FAULTS,
    PARTITIONS,
    Produce,
    TransactionBroker,
    Verification,
)

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
IDS = ("t", "u", "v")
CONFIG = TransactionConfig(
    id_expiration_ms=20_000,
    max_timeout_ms=10_000,
    abort_timed_out_interval_ms=500,
    remove_expired_interval_ms=5_000,
    max_marker_retry_ms=1_000,
)
CHAOS_MS, SETTLE_MS = 60_000, 60_000
REQUEST_TIMEOUT_MS = 1_500
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH}
Answered = Callable[[Any], None]


class Simulated:
    """A producer: begins transactions, writes, and ends them. It retries everything whose response is lost."""

    def __init__(self, world: World, transactional_id: str, version: int) -> None:
        self.world = world
        self.random = world.random
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.timeout_ms = self.random.randrange(1_000, 6_000)
        self.is_dead = False
        self.tag = 0
        self.left: list[tuple[str, int]] = []
        self.acknowledged: list[tuple[str, int]] = []
        self.is_added = self.is_uncertain = False

    def die(self, _response: object = None) -> None:
        self.is_dead = True

    def later(self, action: Callable[[], None], longest_ms: int = 200) -> None:
        def act() -> None:
            if not self.is_dead and not self.world.is_settling:
                action()

        self.world.clock.plan(self.random.randrange(1, longest_ms), act)

    # -- InitProducerId --------------------------------------------------------------------------------------------

    def init(self, *, names_epoch: bool = False) -> None:
        request = InitProducerIdRequest(
            self.transactional_id,
            self.timeout_ms,
            self.producer_id if names_epoch else -1,
            self.epoch if names_epoch else -1,
        )

        def answered(response: Any) -> None:
            error = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
            if error in FENCED:
                self.die()
            elif error is not ErrorCode.NONE:
                self.later(lambda: self.init(names_epoch=names_epoch))
            else:
                self.take(response)
                self.later(self.begin)

        self.world.send(self, request, 5, answered)

    def take(self, response: Any) -> None:
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        owner = self.world.owners.setdefault((self.producer_id, self.epoch), self)
        assert owner is self, f"two producers have {self.producer_id} and epoch {self.epoch}"

    # -- the transaction -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.world.tags += 1
        self.tag = self.world.tags
        self.left = self.random.choices(PARTITIONS, k=self.random.randrange(1, 6))
        self.acknowledged = []
        self.is_added = self.is_uncertain = False
        if self.version == 1:
            self.add()
        elif self.random.random() < 0.05:
            self.end(commit=False)  # before it has begun
        else:
            self.write()

    def add(self) -> None:
        request = AddPartitions(self.transactional_id, self.producer_id, self.epoch, tuple(dict.fromkeys(self.left)))

        def answered(response: Any) -> None:
            error = ErrorCode.REQUEST_TIMED_OUT if response is None else next(iter(response.values()))
            self.is_added = True  # even an error may hide a success
            if error in FENCED:
                self.die()
            elif error is not ErrorCode.NONE:
                self.later(self.add)
            else:
                self.write()

        self.world.send(self, request, 3, answered)

    def write(self) -> None:
        if not self.left:
            commit = bool(self.acknowledged) and not self.is_uncertain and self.random.random() < 0.8
            pause_ms = 8_000 if self.world.has_pauses and self.random.random() < 0.1 else 200
            self.later(lambda: self.end(commit=commit), pause_ms)
            return
        partition = self.left[-1]
        request = Produce(self.transactional_id, self.producer_id, self.epoch, partition, self.tag, self.version == 2)

        def answered(error: ErrorCode | None) -> None:
            if error is ErrorCode.NONE:
                self.acknowledged.append(self.left.pop())
                self.world.acknowledged.setdefault(request.tag, set()).add(partition)
                self.later(self.write, 50)
            elif error is None or error in ABORTABLE or self.random.random() < 0.05:
                self.is_uncertain = True
                self.left = []
                self.write()
            elif error in FENCED:
                self.die()
            else:
                self.later(self.write)

        self.world.send(self, request, 0, answered)

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit)

        def answered(response: Any) -> None:
            error = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
            if error is ErrorCode.NONE:
                self.ended(response)
            elif error in FENCED:
                self.die()
            else:
                self.later(lambda: self.end(commit=commit))

        self.world.send(self, request, 5 if self.version == 2 else 3, answered)

    def ended(self, response: Any) -> None:
        longest_ms = 40_000 if self.world.has_pauses and self.random.random() < 0.02 else 300
        if self.version == 2:
            self.take(response)
            self.later(self.begin, longest_ms)
        elif self.is_uncertain:
            # Data of this epoch may still arrive, so that it must not be used again.
            self.later(lambda: self.init(names_epoch=True))
        else:
            self.later(self.begin, longest_ms)


def old_metadata(producer_id: int, epoch: int) -> Metadata:
    return Metadata(producer_id, epoch, 1_000, State.EMPTY, frozenset(), -1, WALL_START_MS)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = SimulatedClock()
        level = self.random.choice((0, 1, 2, 2))
        # Some ids have few epochs left.
        old = {name: 32_767 - self.random.randrange(1, 12) for name in IDS if self.random.random() < 0.3}
        log = [record_of(name, old_metadata(IDS.index(name), epoch), level) for name, epoch in old.items()]
        self.broker = TransactionBroker(self.clock, self.random, CONFIG, level, log)
        self.broker.on_reply = self.replied
        self.producers: list[Simulated] = []
        self.owners: dict[tuple[int, int], Simulated] = {}
        self.tags = 0
        self.acknowledged: dict[int, set[tuple[str, int]]] = {}
        self.decided: dict[int, bool] = {}
        self.is_settling = False
        self.has_pauses = True
        """Whether producers sometimes pause for longer than their timeout."""

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, producer: Simulated, request: object, version: int, answered: Answered) -> None:
        """Send a request, which may be lost, as may be its response; a late response is ignored."""
        call = Call(request, version, token=(producer, answered, producer.tag))
        waiting = [True]

        def receive(response: Any) -> None:
            is_first = waiting.pop() if waiting else False
            if is_first and not producer.is_dead:
                answered(response)

        call.token = (producer, receive, producer.tag)
        self.clock.plan(REQUEST_TIMEOUT_MS, lambda: receive(None))
        if self.random.random() >= self.broker.faults.message:
            is_late = self.has_pauses and isinstance(request, Produce) and self.random.random() < 0.03
            delay_ms = self.random.randrange(4_000 if is_late else 20)
            self.clock.plan(delay_ms, lambda: self.deliver(call))

    def deliver(self, call: Call) -> None:
        if isinstance(call.request, Produce):
            self.broker.produce(call)
        else:
            self.broker.submit(call)

    def replied(self, call: Call, response: Any) -> None:
        if isinstance(call.token, Verification):
            self.broker.verified(call.token, next(iter(response.values())))
            return
        _, receive, tag = call.token  # type: ignore[misc]
        request = call.request
        if isinstance(request, EndTxnRequest) and response.error_code == ErrorCode.NONE:
            assert self.decided.setdefault(tag, request.committed) == request.committed
        if self.random.random() >= self.broker.faults.message:
            self.clock.plan(self.random.randrange(20), lambda: receive(response))

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self, until_ms: int) -> None:
        events = 0
        while True:
            next_ms = self.clock.next_ms()
            if next_ms is None or next_ms > until_ms:
                self.clock.advance_to(until_ms)
                return
            self.clock.advance_to(next_ms)
            while (event := self.clock.take_due()) is not None:
                event()
                events += 1
                if events % 100 == 0:
                    self.check_outcomes()
                if events % 700 == 0:
                    self.broker.check_replay()
            assert events < 200_000, "the simulation makes no progress"

    def chaos(self) -> None:
        chance = self.random.random()
        if chance < 0.35:
            self.start_producer(self.random.choice(IDS))
        elif chance < 0.55 and self.producers:
            self.random.choice(self.producers).die()
        elif chance < 0.7 and not self.broker.is_loading:
            self.broker.crash()
        elif chance < 0.75:
            self.broker.level = 2
        if self.clock.now_ms < CHAOS_MS:
            self.clock.plan(self.random.randrange(1, 1_500), self.chaos)

    def start_producer(self, transactional_id: str) -> Simulated:
        """Start a producer; an earlier one of the same id may continue without knowing of it."""
        version = self.random.choice((1, 2)) if self.broker.level == 2 else 1
        producer = Simulated(self, transactional_id, version)
        self.producers.append(producer)
        producer.init()
        return producer

    def check(self) -> None:
        self.check_outcomes()
        self.broker.check_replay()

    def check_outcomes(self) -> None:
        outcomes: dict[int, bool] = {}
        for partition in self.broker.partitions.values():
            for tag, commit in partition.outcomes.items():
                assert outcomes.setdefault(tag, commit) == commit, f"transaction {tag} is committed in parts"
                assert self.decided.get(tag, commit) == commit, f"transaction {tag} has another outcome than answered"

    def settle(self) -> None:
        """Stop all faults and producers: every transaction must end, with each of its records."""
        self.is_settling = True
        self.broker.faults = NO_FAULTS
        self.run(self.clock.now_ms + SETTLE_MS)
        self.check()
        states = {metadata.state for metadata in self.broker.shard.transactions.values()}
        assert states <= {State.EMPTY, *COMPLETED}
        for partition in self.broker.partitions.values():
            assert not partition.tags, "a hanging transaction"
        for tag, partitions in self.acknowledged.items():
            for name in partitions:
                assert tag in self.broker.partitions[name].outcomes

    def finish(self) -> None:
        """A new producer of each id can commit."""
        self.is_settling = self.has_pauses = False
        self.producers = []
        for transactional_id in IDS:
            self.start_producer(transactional_id)
        committed = sum(self.decided.values())
        self.run(self.clock.now_ms + 10_000)
        self.check()
        assert not any(producer.is_dead for producer in self.producers)
        assert sum(self.decided.values()) >= committed + len(IDS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_transactions_keep_their_invariants(seed: int) -> None:
    world = World(seed)
    for transactional_id in IDS:
        world.start_producer(transactional_id)
    world.chaos()
    world.run(CHAOS_MS)
    world.settle()
    assert sum(world.decided.values()) > 5, "the simulation has to commit something to prove anything"
    world.finish()
