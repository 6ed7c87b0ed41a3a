"""Streams groups (KIP-1071) under a seed: members come, go, hang and crash while topics and settings change.

After every event the shard's own invariants hold (`validate`): an active task has one owner, and a process has a task
once. Besides:

- as the clients see it, no two members of the group process a task in the same assignment epoch;
- a shard that reads the log has the same groups;
- left alone, every task gets an owner and its standby tasks, the load is even, and the group is Stable.

`OTTLA_SEEDS=500 pytest tests/simulation/test_streams_groups.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.tasks import TaskId, task_ids
from ottla.metadata.image import GROUP
from tests.drivers.groups import GroupDriver
from tests.drivers.streams_members import StreamsMember, word_count

SEEDS = int(os.environ.get("OTTLA_SEEDS", "20"))
STEPS = 150
MOST_REPLICAS = 2


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.driver = GroupDriver(seed=seed)
        self.partitions = 4
        self.members: list[StreamsMember] = []
        self.names = 0
        self.set_topics(self.partitions)

    @property
    def group(self) -> StreamsGroup | None:
        return self.driver.shard.streams_groups.get("g")

    def set_topics(self, count: int) -> None:
        self.driver.change_topics(**dict.fromkeys(("in", "words", "counts"), count))

    # -- events ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        events = [self.join, self.change_topics, self.lose_response, self.leave, self.hang, self.crash, self.fail]
        weights = [4, 1, 3, 1, 1, 1, 1]
        events += [self.restart, self.change_replicas, self.move, self.beat]
        weights += [1, 1, 1, 20]
        self.random.choices(events, weights)[0]()
        self.driver.advance(self.random.choice([0, 100, 1_000, 5_000]))
        self.check()

    def join(self) -> None:
        if len(self.members) >= 6:
            return
        self.names += 1
        process = f"p{self.random.randint(1, 3)}"
        member = StreamsMember(self.driver, f"m{self.names}", process=process, topology=word_count())
        if member.beat() is ErrorCode.NONE:
            self.members.append(member)

    def beat(self) -> None:
        for member in self.members:
            member.beat()

    def lose_response(self) -> None:
        if self.members:
            self.random.choice(self.members).lose_response()

    def leave(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members))).leave()

    def crash(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members)))

    def move(self) -> None:
        """Restart a client in another process under its id."""
        if self.members:
            member = self.random.choice(self.members)
            member.leave()
            member.process = f"p{self.random.randint(1, 3)}"

    def hang(self) -> None:
        """Let a member keep its tasks for a while."""
        if self.members:
            member = self.random.choice(self.members)
            member.clings = not member.clings

    def change_topics(self) -> None:
        """Delete and recreate the topics with more partitions."""
        self.set_topics(0)
        self.beat()
        self.partitions = min(self.partitions + 1, 8)
        self.set_topics(self.partitions)

    def change_replicas(self) -> None:
        value = str(self.random.randint(0, MOST_REPLICAS))
        configs = {**self.driver.image.configs, (GROUP, "g"): {"streams.num.standby.replicas": value}}
        self.driver.image = replace(self.driver.image, configs=configs)
        self.driver.shard.metadata_changed(self.driver.image, has_new_topics=False)

    def fail(self) -> None:
        """Let appends fail for one round of heartbeats."""
        self.driver.append_error = self.random.choice([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
        self.beat()
        self.driver.append_error = ErrorCode.NONE

    def restart(self) -> None:
        self.driver.restart()

    # -- checks ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        owners: dict[TaskId, str] = {}
        for member in self.members:
            stored = group.members.get(member.member_id)
            # A member that was removed, or missed a response, learns with its next heartbeat what it lost.
            if stored is None or member.epoch != stored.epoch or member.clings:
                continue
            for task in task_ids(member.active):
                other = owners.setdefault(task, member.member_id)
                assert other == member.member_id, f"{other} and {member.member_id} process {task}"
        for task, member_id in owners.items():
            assert group.active_owners.get(task) in (None, member_id)

    def check_replay(self) -> None:
        group, replayed = self.group, self.driver.replayed().streams_groups.get("g")
        assert (replayed is None) == (group is None)
        if replayed is None or group is None:
            return
        assert replayed.members == group.members
        assert replayed.targets == group.targets
        assert (replayed.epoch, replayed.target.epoch) == (group.epoch, group.target.epoch)
        assert (replayed.validated_epoch, replayed.state.metadata_hash) == (
            group.validated_epoch,
            group.state.metadata_hash,
        )
        assert replayed.assignment_settings == group.assignment_settings
        replayed.validate()

    def check_recovery(self) -> None:
        """Left alone, all tasks get an owner."""
        for member in self.members:
            member.clings = False
        if not self.members:
            self.members.append(StreamsMember(self.driver, "last"))
        for _ in range(40):
            self.driver.advance(5_000)
            self.beat()
        group = self.group
        assert group is not None
        assert group.state_name == "Stable"
        owned = sorted(task for member in self.members for task in task_ids(member.active))
        assert owned == [(name, index) for name in ("0", "1") for index in range(self.partitions)]
        replicas = int(group.assignment_settings["num.standby.replicas"])
        processes = {member.process for member in self.members}
        standbys = sorted(task for member in self.members for task in task_ids(member.standby))
        copies = min(replicas, len(processes) - 1)
        assert standbys == [("1", index) for index in range(self.partitions) for _ in range(copies)]
        counts = [len(list(task_ids(member.active))) for member in self.members]
        if not replicas:
            assert max(counts) - min(counts) <= 1 + len(owned) // max(len(processes), 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_active_tasks_have_one_owner_and_all_get_one(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.check_replay()
    world.check_recovery()
