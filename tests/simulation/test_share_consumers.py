"""Share consumers and the leaders of their partitions under a seed: slow polls, late responses, lost connections.

Real: the core of the share consumer, share sessions and share partitions. Simulated: the network, the group
coordinator, and the storage of share state, which always succeeds.

- a poll never returns a record whose lock has ended, except for the time that the response was on its way;
- a consumer acknowledges only what a poll returned to it, or offsets without a record;
- with record_limit, a consumer never acquires more records than its poll returns;
- left alone, every record is accepted, and the consumers hold nothing: what was acquired is acknowledged or dropped.

`OTTLA_SEEDS=500 pytest tests/simulation/test_share_consumers.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import heapq
import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.effects import COORDINATOR, ForgetCoordinator, Refresh, Send
from ottla.clients.errors import ConnectionLost, NotAssigned
from ottla.clients.share.acknowledgements import GAP, AcknowledgeType
from ottla.clients.share.core import ShareCore
from ottla.clients.share.settings import read_share_settings
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Refusal, check_form
from ottla.coordinators.share.acquisition import Acquisition, OffsetRange
from ottla.coordinators.share.limits import AcquireMode, ShareLimits
from ottla.coordinators.share.partition import SharePartition, StateWrite, StoredState
from ottla.coordinators.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SharedTopicPartition,
    ShareSessions,
)
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from ottla.records import encode_batch

SEEDS = int(os.environ.get("OTTLA_SEEDS", "16"))
T = (1).to_bytes(16, "big")
LEADERS = 2
LOCK_MS, WAIT_MS, LATENCY_MS = 3_000.0, 400, 300.0


class Leader:
    """The leader of one partition: a log of batches with gaps, and the share partition."""

    def __init__(self, world: World, index: int) -> None:
        self.world, self.index = world, index
        self.name = SharedTopicPartition(T, index)
        self.sessions = ShareSessions(10)
        self.batches: list[tuple[OffsetRange, bytes]] = []
        self.offsets: set[int] = set()
        offset = 0
        while offset < 120:
            offset += world.random.choice((0, 0, 0, 2))
            size = world.random.choice((1, 3, 40))
            rows = [(0, None, b"v", []) for _ in range(size)]
            self.batches.append((OffsetRange(offset, offset + size - 1), bytes(encode_batch(rows, base_offset=offset))))
            self.offsets.update(range(offset, offset + size))
            offset += size
        limits = ShareLimits(lock_duration_ms=int(LOCK_MS), max_delivery_count=1_000)
        self.share = SharePartition(StoredState(1, 0), limits)
        self.locked_until_ms: dict[tuple[str, int], float] = {}
        self.accepted: set[int] = set()

    def store(self, write: StateWrite | Refusal | None) -> None:
        if isinstance(write, StateWrite):
            self.share.written(write.id, succeeded=True, now_ms=int(self.world.now_ms))

    def expire(self) -> None:
        deadline_ms = self.share.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.world.now_ms:
            self.store(self.share.expire(int(self.world.now_ms)))
        self.share.validate()

    def disconnect(self, member: str) -> None:
        for session in self.sessions.close_connection(member):
            self.store(self.share.release(session.key.member_id))
            for holder, offset in self.locked_until_ms:
                if holder == member:
                    self.locked_until_ms[holder, offset] = min(self.locked_until_ms[holder, offset], self.world.now_ms)

    def answer(self, request: Any) -> Any:
        """The response to a request that waits no longer."""
        self.expire()
        is_fetch = isinstance(request, share_fetch.ShareFetchRequest)
        response = share_fetch.ShareFetchResponse() if is_fetch else share_acknowledge.ShareAcknowledgeResponse()
        member, epoch = request.member_id, request.share_session_epoch
        key = SessionKey("g", member)
        given = [each for topic in request.topics for each in topic.partitions if each.acknowledgement_batches]
        try:
            if epoch == INITIAL_EPOCH:
                self.sessions.open(key, member, [self.name], acknowledges=bool(given))
            elif epoch != FINAL_EPOCH:
                self.sessions.resume(key, epoch)
        except KafkaError as error:
            response.error_code = error.code
            return response
        code = self.acknowledge(member, given[0].acknowledgement_batches) if given else None
        response.acquisition_lock_timeout_ms = int(LOCK_MS)
        if is_fetch:
            row: Any = share_fetch.PartitionData(partition_index=self.index, acknowledge_error_code=code or 0)
            self.acquire(request, row)
            response.responses = [share_fetch.ShareFetchableTopicResponse(T, [row])]
        elif code is not None:
            row = share_acknowledge.PartitionData(partition_index=self.index, error_code=code)
            response.responses = [share_acknowledge.ShareAcknowledgeTopicResponse(T, [row])]
        if epoch == FINAL_EPOCH:
            self.disconnect(member)
        return response

    def acknowledge(self, member: str, rows: list[Any]) -> int:
        batches = [AcknowledgementBatch(row.first_offset, row.last_offset, row.acknowledge_types) for row in rows]
        assert check_form(batches, renews=True) is None
        types = {
            offset: batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first_offset]
            for batch in batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        returned = self.world.returned[member]
        for offset, kind in types.items():
            assert (offset in self.offsets) != (kind == GAP), f"{offset} was acknowledged with {kind}"
            assert kind == GAP or (self.index, offset) in returned, f"no poll returned {offset}"
        result = self.share.acknowledge(member, batches, int(self.world.now_ms))
        if isinstance(result, Refusal):
            return result.error
        self.store(result)
        for offset, kind in types.items():
            self.locked_until_ms[member, offset] = self.world.now_ms + LOCK_MS * (kind == AcknowledgeType.RENEW)
            if kind == AcknowledgeType.ACCEPT:
                self.accepted.add(offset)
        return 0

    def acquire(self, request: share_fetch.ShareFetchRequest, row: share_fetch.PartitionData) -> None:
        offset = self.share.next_fetch_offset()
        fetched = [each for each in self.batches if each[0].last >= offset][:4]
        wanted = Acquisition(
            request.member_id, request.max_records, request.batch_size, AcquireMode(request.share_acquire_mode)
        )
        ranges = [each for each, _ in fetched]
        acquired = self.share.acquire(wanted, offset, ranges, int(self.world.now_ms))
        for piece in acquired:
            for each in range(piece.first, piece.last + 1):
                self.locked_until_ms[request.member_id or "", each] = self.world.now_ms + LOCK_MS
        row.records = memoryview(b"".join(data for _, data in fetched))
        row.acquired_records = [share_fetch.AcquiredRecords(*piece) for piece in acquired]


class World:
    """Two leaders, two consumers, and a queue of events in time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000.0
        self.is_calm = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.leaders = [Leader(self, index) for index in range(LEADERS)]
        self.returned: dict[str, set[tuple[int, int]]] = {}
        self.members = [Member(self, name) for name in ("a", "b")]

    def after(self, delay_ms: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), event))

    def run(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        self.now_ms = end_ms


class Member:
    """A consumer that polls, processes slowly or fast, and acknowledges."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.random = world.random
        self.is_explicit = self.random.random() < 0.5
        self.is_strict = self.random.random() < 0.5
        _, settings = read_share_settings(
            {
                "bootstrap_servers": "h:1",
                "group_id": "g",
                "fetch_max_wait_ms": WAIT_MS,
                "share_acknowledgement_mode": "explicit" if self.is_explicit else "implicit",
                "share_acquire_mode": "record_limit" if self.is_strict else "batch_optimized",
            }
        )
        world.returned[name] = set()
        view = ClusterView()
        rows = [MetadataResponsePartition(partition_index=i, leader_id=i, leader_epoch=0) for i in range(LEADERS)]
        self.metadata = MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=T, partitions=rows)])
        view.apply(self.metadata, 0)
        self.view, self.core = view, ShareCore(settings, view, member_id=name)
        self.core.subscribe(["t"])
        self.fetching = 0
        self.wake()
        self.poll()

    # -- the network -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        now_ms = self.world.now_ms
        for effect in self.core.advance(now_ms):
            if isinstance(effect, Refresh):
                self.view.apply(self.metadata, now_ms)
                self.complete(effect, None, 1.0)
            elif isinstance(effect, Send) and effect.node == COORDINATOR:
                given = Assignment([TopicPartitions(T, list(range(LEADERS)))])
                response = ShareGroupHeartbeatResponse(
                    member_id=self.name, member_epoch=1, heartbeat_interval_ms=60_000, assignment=given
                )
                self.complete(effect, response, 1.0)
            else:
                assert not isinstance(effect, ForgetCoordinator)
                self.send(effect)
        self.core.validate()
        timer_ms = self.core.next_timer_ms()
        if timer_ms is not None:
            self.world.after(max(1.0, timer_ms - now_ms), self.wake)

    def send(self, effect: Send) -> None:
        request, leader = effect.request, self.world.leaders[effect.node]
        acquires = isinstance(request, share_fetch.ShareFetchRequest)
        if acquires:
            self.fetching += 1
            assert self.fetching == 1 or not self.is_strict, "one broker at a time"
            assert request.max_records == self.limit  # type: ignore[attr-defined]
        fault = 1.0 if self.world.is_calm else self.random.random()
        wait_ms = self.random.uniform(0, WAIT_MS) if acquires else 0.0

        def arrive() -> None:
            outcome = leader.answer(request)
            # A response may be late because the network, or this process, made no progress.
            delay_ms = self.random.uniform(1, LATENCY_MS) + (self.random.uniform(0, 2 * LOCK_MS) if fault < 0.05 else 0)
            if fault > 0.05 and fault < 0.1:
                leader.disconnect(self.name)
                outcome = ConnectionLost("lost")
            self.world.after(delay_ms, lambda: self.finish(effect, outcome, acquires=acquires))

        self.world.after(self.random.uniform(1, LATENCY_MS / 10) + wait_ms, arrive)

    def finish(self, effect: Send, outcome: Any, *, acquires: bool) -> None:
        self.fetching -= acquires
        self.core.complete(effect.id, outcome, self.world.now_ms)
        self.wake()

    def complete(self, effect: Send | Refresh, outcome: Any, delay_ms: float) -> None:
        def done() -> None:
            self.core.complete(effect.id, outcome, self.world.now_ms)
            self.wake()

        self.world.after(delay_ms, done)

    # -- the user --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        now_ms = self.world.now_ms
        self.limit = self.random.choice((1, 5, 20, 100))
        self.deadline_ms = now_ms + self.random.choice((0, 100, 1_000))
        self.core.begin_poll(now_ms, self.limit)
        self.wake()
        self.collect()

    def collect(self) -> None:
        now_ms = self.world.now_ms
        self.core.raise_error()
        records = self.core.fill(now_ms)
        assert len(records) <= self.limit
        for record in records:
            until_ms = self.world.leaders[record.partition].locked_until_ms[self.name, record.offset]
            assert now_ms < until_ms + max(LATENCY_MS, WAIT_MS), f"the lock of {record.offset} has ended"
            self.world.returned[self.name].add((record.partition, record.offset))
        if not records and now_ms < self.deadline_ms:
            self.wake()
            self.world.after(20, self.collect)
            return
        self.core.end_poll(now_ms)
        times_ms = (0, 200) if self.world.is_calm else (0, 200, 2_500, 2 * LOCK_MS)
        self.world.after(self.random.choice(times_ms), lambda: self.process(records))

    def process(self, records: list[Any]) -> None:
        kinds = [AcknowledgeType.ACCEPT] * 4 if self.world.is_calm else list(AcknowledgeType)
        kinds = [kind for kind in kinds if kind is not AcknowledgeType.REJECT]
        if self.is_explicit:
            held = [TopicPartition("t", i) for i in range(LEADERS)]
            for tp in held:
                for offset in self.core._held.offsets(tp):
                    try:
                        self.core.acknowledge(tp, offset, self.random.choice(kinds))
                    except NotAssigned:
                        raise AssertionError("a held record cannot be acknowledged") from None
        if self.random.random() < 0.3:
            self.core.commit()
            self.wake()
        self.poll()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_share_consumers(seed: int) -> None:
    world = World(seed)
    world.run(40_000)
    world.is_calm = True
    for _ in range(40):
        world.run(5_000)
        if all(leader.accepted >= leader.offsets for leader in world.leaders):
            break
    for leader in world.leaders:
        assert leader.accepted == leader.offsets
    world.run(3 * LOCK_MS)
    assert not any(member.core._buffer for member in world.members)


def test_error_codes_of_the_simulated_leader() -> None:
    """A leader refuses acknowledgements of a member without a session, as the real one does."""
    world = World(0)
    request = share_acknowledge.ShareAcknowledgeRequest(group_id="g", member_id="x", share_session_epoch=3)
    assert world.leaders[0].answer(request).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
