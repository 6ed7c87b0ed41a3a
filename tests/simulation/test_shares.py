"""A share partition and its coordinator under a seed: members acquire and acknowledge, leader and coordinator restart.

After every event the cores' own invariants hold (`validate`). Besides, as the members see it:

- a record is acquired by at most one member at a time;
- a leader delivers a record at most as often as the limit says;
- a record whose acknowledgement was answered is never delivered again, whatever restarts;
- a coordinator that replays its log, pruned or not, has the same state;
- left alone, every record is acknowledged or archived, and the window is empty.

`OTTLA_SEEDS=500 pytest tests/simulation/test_shares.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from dataclasses import replace

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, AcknowledgeType, Refusal, check_form
from ottla.coordinators.share.acquisition import Acquisition, OffsetRange
from ottla.coordinators.share.events import InitializeState, ReadState, ShareKey, WriteState
from ottla.coordinators.share.limits import AcquireMode, ShareLimits
from ottla.coordinators.share.partition import SharePartition, StateWrite, StoredState
from ottla.coordinators.share.shard import ShareCoordinatorConfig
from tests.drivers.shares import ShareCoordinatorDriver

SEEDS = int(os.environ.get("OTTLA_SEEDS", "16"))
KEY = ShareKey("g", bytes(16), 0)
LOCK_MS = 15_000
MEMBERS = ("a", "b", "c", "d")
FINAL = {AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP}


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.coordinator = ShareCoordinatorDriver(
            ShareCoordinatorConfig(update_records_per_snapshot=self.random.choice((0, 3, 20)))
        )
        self.limits = ShareLimits(
            lock_duration_ms=LOCK_MS,
            max_delivery_count=self.random.choice((2, 3, 5)),
            max_record_locks=self.random.choice((20, 100)),
        )
        self.log = self.make_log(self.random.randrange(20, 400))
        self.log_start = 0
        self.leader_epoch = 0
        # Writes in the order of their requests, with the acknowledgements that are answered after them.
        self.writes: deque[tuple[StateWrite, dict[int, AcknowledgeType]]] = deque()
        self.holders: dict[int, tuple[str, int]] = {}
        self.deliveries: Counter[int] = Counter()
        self.finished: set[int] = set()
        self.coordinator.ask(InitializeState(KEY, 1, 0))
        self.share = self.load()

    def make_log(self, records: int) -> list[tuple[OffsetRange, bool]]:
        """Record batches, and whether their transaction was aborted. Compaction has left gaps."""
        batches: list[tuple[OffsetRange, bool]] = []
        offset = 0
        while offset < records:
            if self.random.random() < 0.1:
                offset += self.random.randrange(1, 8)
            size = self.random.choice((1, 1, 5, 30))
            batches.append((OffsetRange(offset, offset + size - 1), self.random.random() < 0.1))
            offset += size
        return batches

    # -- leader and coordinator ------------------------------------------------------------------------------------

    def load(self) -> SharePartition:
        self.leader_epoch += 1
        self.holders.clear()
        self.deliveries.clear()
        self.writes.clear()
        result = self.coordinator.ask(ReadState(KEY, self.leader_epoch))
        assert result.error is ErrorCode.NONE
        share = SharePartition(StoredState(result.state_epoch, result.start_offset, result.batches), self.limits)
        share.advance_log_start(self.log_start)
        return share

    def enqueue(self, write: StateWrite | Refusal | None, types: dict[int, AcknowledgeType]) -> None:
        if isinstance(write, StateWrite):
            self.writes.append((write, types))

    def store_one(self) -> None:
        """Store the oldest write, and answer its acknowledgements."""
        write, types = self.writes.popleft()
        fails = self.random.random() < 0.1
        self.coordinator.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE
        result = self.coordinator.ask(
            WriteState(KEY, 1, self.leader_epoch, write.start_offset, write.delivery_complete_count, write.batches)
        )
        self.coordinator.append_error = ErrorCode.NONE
        self.share.written(write.id, succeeded=result.error is ErrorCode.NONE, now_ms=self.now_ms)
        for offset, type_ in types.items():
            if result.error is not ErrorCode.NONE:
                continue
            self.holders.pop(offset, None)
            if type_ in FINAL:
                self.finished.add(offset)

    # -- members ---------------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        member = self.random.choice(MEMBERS)
        mode = self.random.choice(list(AcquireMode))
        offset = self.share.next_fetch_offset()
        assert offset >= self.log_start
        fetched = [row for row in self.log if row[0].last >= offset][: self.random.randrange(1, 12)]
        request = Acquisition(member, self.random.choice((1, 7, 50)), self.random.choice((1, 10)), mode)
        aborted = [batch for batch, is_aborted in fetched if is_aborted]
        acquired = self.share.acquire(request, offset, [batch for batch, _ in fetched], self.now_ms, aborted)
        offsets = [o for piece in acquired for o in range(piece.first, piece.last + 1)]
        assert offsets == sorted(set(offsets))
        assert mode is AcquireMode.BATCH_OPTIMIZED or len(offsets) <= request.max_records
        hidden = {o for batch in aborted for o in range(batch.first, batch.last + 1)}
        assert not hidden.intersection(offsets), "a record of an aborted transaction was delivered"
        for piece in acquired:
            assert piece.delivery_count <= self.limits.max_delivery_count
        for o in offsets:
            holder = self.holders.get(o)
            assert holder is None or holder[1] <= self.now_ms, f"{o} of {holder} was given to {member}"
            assert o not in self.finished, f"{o} was delivered after its acknowledgement was answered"
            self.holders[o] = (member, self.now_ms + LOCK_MS)
            self.deliveries[o] += 1
            assert self.deliveries[o] <= self.limits.max_delivery_count

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        mine = sorted(
            o for o, (holder, deadline) in self.holders.items() if holder == member and deadline > self.now_ms
        )
        pending = {o for _, types in self.writes for o in types}
        mine = [o for o in mine if o not in pending]
        if not mine:
            return
        start = self.random.randrange(len(mine))
        chosen = mine[start : start + self.random.choice((1, 3, 40))]
        types = {o: self.random.choice(list(AcknowledgeType)) for o in chosen}
        if self.random.random() < 0.5:
            types = dict.fromkeys(chosen, AcknowledgeType.ACCEPT)
        write = self.share.acknowledge(member, to_batches(types, self.random), self.now_ms)
        assert not isinstance(write, Refusal), (write, types, self.share)
        for o, type_ in types.items():
            if type_ is AcknowledgeType.RENEW:
                self.holders[o] = (member, self.now_ms + LOCK_MS)
        self.enqueue(write, {o: t for o, t in types.items() if t is not AcknowledgeType.RENEW})

    def acknowledge_badly(self) -> None:
        """Acknowledge what the member has not acquired, in any form."""
        member = self.random.choice((*MEMBERS, "forged"))
        batches = []
        for _ in range(self.random.randrange(1, 4)):
            first = self.random.randrange(-2, 450)
            last = first + self.random.choice((-1, 0, 3, 2**40))
            types = [self.random.randrange(-1, 6) for _ in range(self.random.choice((0, 1, 1, 4)))]
            batches.append(AcknowledgementBatch(first, last, types))
        if check_form(batches, renews=True) is not None:
            return
        owned = {o for o, (holder, deadline) in self.holders.items() if holder == member and deadline > self.now_ms}
        live = range(self.share.start_offset, self.share.end_offset + 1)
        touched = [o for batch in batches for o in live if batch.first_offset <= o <= batch.last_offset]
        if not touched or owned.issuperset(touched):
            return
        gaps = set(live).difference(o for batch, _ in self.log for o in range(batch.first, batch.last + 1))
        before = str(self.share)
        result = self.share.acknowledge(member, batches, self.now_ms)
        if not set(touched) - gaps <= owned:
            assert isinstance(result, Refusal), (result, before)
        elif isinstance(result, StateWrite):
            self.share.written(result.id, succeeded=False, now_ms=self.now_ms)

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        offsets = {o: AcknowledgeType.RELEASE for o, (holder, _) in self.holders.items() if holder == member}
        pending = {o for _, types in self.writes for o in types}
        write = self.share.release(member)
        self.enqueue(write, {o: t for o, t in offsets.items() if o not in pending} if write else {})

    # -- time and failures -----------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        duration_ms = self.random.choice((100, 3_000, LOCK_MS, 400_000))
        self.now_ms += duration_ms
        self.coordinator.advance(duration_ms)
        deadline_ms = self.share.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.enqueue(self.share.expire(self.now_ms), {})

    def delete_records(self) -> None:
        last = self.log[-1][0].last
        self.log_start = min(last, self.log_start + self.random.randrange(30))
        self.log = [row for row in self.log if row[0].last >= self.log_start]
        self.share.advance_log_start(self.log_start)
        self.holders = {o: holder for o, holder in self.holders.items() if o >= self.log_start}

    def step(self) -> None:
        actions = {
            self.acquire: 30,
            self.acknowledge: 30,
            self.acknowledge_badly: 5,
            self.pass_time: 8,
            self.leave: 3,
            self.delete_records: 1,
            self.coordinator.restart: 2,
        }
        action = self.random.choices(list(actions), list(actions.values()))[0]
        action()
        while self.writes and self.random.random() < 0.6:
            self.store_one()
        if self.random.random() < 0.01:
            self.share = self.load()
        self.check()

    def check(self) -> None:
        self.share.validate()
        if self.random.random() < 0.8:
            return
        assert self.share.in_flight_count <= self.limits.max_record_locks + 40, "more than a batch beyond the limit"
        assert self.states(self.coordinator.replayed().states[KEY]) == self.states(self.coordinator.shard.states[KEY])

    @staticmethod
    def states(stored: object) -> object:
        return replace(stored, updates=0)  # type: ignore[type-var]

    def finish(self) -> None:
        """Every record finds a member that accepts it, or is delivered too often."""
        end = self.log[-1][0].last + 1
        for _ in range(4_000):
            while self.writes:
                self.store_one()
            if self.share.start_offset >= end:
                break
            self.acquire()
            self.acknowledge()
            self.check()
            if self.random.random() < 0.2:
                self.now_ms += LOCK_MS
                self.enqueue(self.share.expire(self.now_ms), {})
        assert self.share.start_offset >= end
        assert self.share.in_flight_count == 0


def to_batches(types: dict[int, AcknowledgeType], source: random.Random) -> list[AcknowledgementBatch]:
    """Neighbouring offsets as one batch, in any of the legal forms."""
    batches: list[AcknowledgementBatch] = []
    for offset, type_ in sorted(types.items()):
        previous = batches[-1] if batches else None
        if previous is not None and previous.last_offset + 1 == offset and source.random() < 0.9:
            batches[-1] = AcknowledgementBatch(previous.first_offset, offset, (*previous.types, type_))
        else:
            batches.append(AcknowledgementBatch(offset, offset, (type_,)))
    return [
        batch._replace(types=batch.types[:1]) if len(set(batch.types)) == 1 and source.random() < 0.7 else batch
        for batch in batches
    ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_share_partition(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        world.step()
    world.finish()
