"""Groups under a seed: clients come, go, crash and commit, the coordinator restarts, its disk fails.

After every event the shard's own invariants hold (`validate`). Besides, as the clients see it:

- no two members own a partition in one generation;
- a commit is accepted only in the group's current generation;
- what was acknowledged is in the log: a shard that reads the log has the same offsets and the same stable groups;
- every JoinGroup and SyncGroup is answered in time;
- left alone, every group ends up stable, with every partition owned.

`OTTLA_SEEDS=500 pytest tests/simulation/test_groups.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import Call, GroupConfig
from ottla.coordinators.group.states import State
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.drivers.groups import GroupDriver, Joiner

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
PARTITIONS = range(6)
GROUPS = ("a", "b")
SESSION_MS, REBALANCE_MS = 8_000, 15_000
# A join waits for other members, at most until absent static members expire. A sync waits for the leader.
ANSWER_WITHIN_MS = 3 * REBALANCE_MS + SESSION_MS
# A group that was loaded knows only the protocol that was chosen, so that a restart may shut out a newcomer.
FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


@dataclass(eq=False)
class Client:
    """A consumer with a simple assignor; `name` identifies it, independently of its member ids."""

    name: str
    joiner: Joiner
    waiting: Call | None = None
    phase: str = "out"  # out, joining, syncing, member, dead
    owned: set[int] = field(default_factory=set)
    next_ms: int = 0
    busy_until_ms: int = 0
    """Until then it processes records and does not rejoin, possibly for longer than its timeout."""


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        config = GroupConfig(offsets_retention_ms=60_000_000, new_member_join_timeout_ms=20_000)
        self.driver = GroupDriver(config, seed)
        self.clients: list[Client] = []
        self.owners: dict[tuple[str, int, int], str] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.parked: dict[Call, int] = {}
        self.names = 0
        self.offset = 0
        self.accepted = self.generations = 0

    # -- clients ---------------------------------------------------------------------------------------------------

    def start_client(self) -> None:
        group = self.random.choice(GROUPS)
        instance = f"s{self.random.randrange(4)}" if self.random.random() < 0.4 else None
        self.names += 1
        joiner = Joiner(
            self.driver,
            group,
            instance_id=instance,
            version=self.random.choice((3, 5, 9, 9)) if instance is None else self.random.choice((8, 9)),
            protocols=self.random.choice(((("p", b"1"),), (("q", b"1"), ("p", b"1")), (("p", b"2"), ("q", b"2")))),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        client = Client(f"{group}/{instance}" if instance else f"{group}/c{self.names}", joiner)
        client.next_ms = self.driver.now_ms
        self.clients.append(client)

    def tick(self, client: Client) -> None:
        client.next_ms = self.driver.now_ms + self.random.randrange(50, 2_000)
        if client.waiting is not None:
            self.look_for_answer(client)
        if client.phase == "out":
            self.park(client, client.joiner.join(), "joining")
            return
        if client.phase == "member" and client.owned and self.random.random() < 0.5:
            # It may not know yet that it was removed.
            self.commit(client)
        if client.phase == "member":
            error = client.joiner.heartbeat()
            if error is ErrorCode.REBALANCE_IN_PROGRESS and self.driver.now_ms < client.busy_until_ms:
                return
            if error is not ErrorCode.NONE:
                self.refused(client, error)
            elif client.owned and self.random.random() < 0.5:
                self.commit(client)

    def park(self, client: Client, call: Call, phase: str) -> None:
        client.waiting, client.phase = call, phase
        self.parked[call] = self.driver.now_ms
        self.look_for_answer(client)

    def look_for_answer(self, client: Client) -> None:
        answer = self.driver.answers.get(client.waiting) if client.waiting is not None else None
        if answer is None:
            return
        client.waiting = None
        if answer.error_code:
            self.refused(client, ErrorCode(answer.error_code))
        elif client.phase == "joining":
            client.joiner.member_id, client.joiner.generation = answer.member_id, answer.generation_id
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            plan = self.assign([row.member_id for row in answer.members]) if leads else None
            if self.random.random() < 0.95:
                self.park(client, client.joiner.sync(plan), "syncing")
            else:
                self.crash(client)
        else:
            client.phase, client.owned = "member", {int(n) for n in answer.assignment.split(b",") if n}
            self.check_owned(client)

    def assign(self, members: list[str]) -> dict[str, bytes]:
        return {
            member: b",".join(b"%d" % n for n in PARTITIONS if n % len(members) == i)
            for i, member in enumerate(members)
        }

    def refused(self, client: Client, error: ErrorCode) -> None:
        client.owned, client.waiting = set(), None
        if error in FATAL:
            client.phase = "dead"
            return
        client.phase = "out"
        if error not in REJOIN and not error.retriable:
            client.joiner.member_id = ""

    def crash(self, client: Client) -> None:
        client.phase, client.owned, client.waiting = "dead", set(), None

    def commit(self, client: Client) -> None:
        joiner, partition = client.joiner, self.random.choice(sorted(client.owned))
        self.offset += 1
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=self.offset)
        request = OffsetCommitRequest(
            group_id=joiner.group_id,
            generation_id_or_member_epoch=joiner.generation,
            member_id=joiner.member_id,
            group_instance_id=joiner.instance_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        error = ErrorCode(self.driver.ask(request).topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            assert joiner.generation == self.driver.shard.groups[joiner.group_id].generation
            assert self.owners[joiner.group_id, joiner.generation, partition] == client.name
            self.committed[joiner.group_id, "t", partition] = self.offset
            self.accepted += 1
        elif not error.retriable:
            self.refused(client, error)

    def check_owned(self, client: Client) -> None:
        for partition in client.owned:
            key = (client.joiner.group_id, client.joiner.generation, partition)
            owner = self.owners.setdefault(key, client.name)
            assert owner == client.name, f"{key} is owned by {owner} and {client.name}"

    # -- the world ---------------------------------------------------------------------------------------------------

    def step(self, chaos: bool) -> None:
        due = [client for client in self.clients if client.phase != "dead"]
        wait_ms = min([client.next_ms for client in due], default=self.driver.now_ms + 1_000) - self.driver.now_ms
        self.driver.advance(max(wait_ms, 1))
        for client in due:
            if client.next_ms <= self.driver.now_ms:
                self.tick(client)
        if chaos:
            self.disturb(due)
        self.check()

    def disturb(self, alive: list[Client]) -> None:
        chance = self.random.random()
        if chance < 0.04 and len(alive) < 8:
            self.start_client()
        elif chance < 0.05 and alive:
            self.crash(self.random.choice(alive))
        elif chance < 0.06 and alive:
            client = self.random.choice(alive)
            if client.phase == "member":
                client.joiner.leave()
            self.crash(client)
        elif chance < 0.064:
            self.restart()
        elif chance < 0.08:
            failing = self.driver.append_error is not ErrorCode.NONE
            self.driver.append_error = ErrorCode.NONE if failing else ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif chance < 0.09 and alive:
            self.random.choice(alive).joiner.protocols = (("p", self.random.randbytes(1)), ("q", b"x"))
        elif chance < 0.14 and alive:
            self.random.choice(alive).busy_until_ms = self.driver.now_ms + self.random.randrange(2 * REBALANCE_MS)

    def restart(self) -> None:
        self.driver.restart()
        for client in self.clients:
            if client.waiting is not None and client.waiting not in self.driver.answers:
                # The connection is lost together with the request.
                client.waiting, client.phase = None, "out" if client.phase != "dead" else "dead"
        self.parked.clear()

    def check(self) -> None:
        now_ms = self.driver.now_ms
        for call in [call for call in self.parked if call in self.driver.answers]:
            del self.parked[call]
        late = [call for call, since_ms in self.parked.items() if now_ms - since_ms > ANSWER_WITHIN_MS]
        assert not late, f"not answered: {late[0].request}"

    def check_log(self) -> None:
        """A shard that replays the log has the state of the live shard, and every acknowledged commit."""
        live, replayed = self.driver.shard, self.driver.replayed()
        assert {key: row.offset for key, row in live.committed_offsets().items()} == self.committed
        assert replayed.committed_offsets() == live.committed_offsets()
        for group_id, group in live.groups.items():
            if group.state is not State.STABLE:
                continue
            self.generations = max(self.generations, group.generation)
            other = replayed.groups[group_id]
            assert (other.generation, other.protocol_name, other.state) == (
                group.generation,
                group.protocol_name,
                group.state,
            )
            stored = {m.member_id: (m.instance_id, m.assignment) for m in other.members.values()}
            for member in group.members.values():
                assert stored[member.member_id] == (member.instance_id, member.assignment)

    def settle(self) -> None:
        """Stop all faults; the clients that are alive must become stable."""
        self.driver.append_error = ErrorCode.NONE
        until_ms = self.driver.now_ms + 4 * ANSWER_WITHIN_MS
        while self.driver.now_ms < until_ms:
            self.step(chaos=False)
        for group_id in GROUPS:
            alive = [c for c in self.clients if c.joiner.group_id == group_id and c.phase != "dead"]
            if alive:
                assert {c.phase for c in alive} == {"member"}
                assert self.driver.shard.groups[group_id].state is State.STABLE
                assert sorted(n for c in alive for n in c.owned) == list(PARTITIONS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_keep_their_invariants(seed: int) -> None:
    world = World(seed)
    for _ in range(3):
        world.start_client()
    for round_number in range(800):
        world.step(chaos=True)
        if round_number % 20 == 0:
            world.check_log()
    world.settle()
    world.check_log()
    assert world.accepted > 20, "the simulation has to commit something to prove anything"
