"""Consumer groups (KIP-848) under a seed: members of both protocols come, go, hang and crash while topics change.

After every event the shard's own invariants hold (`validate`): one owner per partition, all counts agree with the
members. Besides:

- as the clients see it, no two members of the group own a partition in the same assignment epoch;
- a shard that reads the log has the same groups;
- left alone, every partition of every subscribed topic gets an owner, and the group is Stable.

`OTTLA_SEEDS=500 pytest tests/simulation/test_consumer_groups.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DescribeConsumerGroup, GroupConfig
from ottla.coordinators.group.consumer.config import ConsumerGroupConfig
from ottla.coordinators.group.consumer.group import ConsumerGroup
from tests.drivers.consumer_members import ClassicConsumer, Member
from tests.drivers.groups import GroupDriver, topic_id

SEEDS = int(os.environ.get("OTTLA_SEEDS", "20"))
STEPS = 150
TOPICS = ("a", "b", "c")


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # A classic group would need a leader: test_group_migration.py covers downgrades.
        self.driver = GroupDriver(GroupConfig(consumer=ConsumerGroupConfig(may_downgrade=False)), seed)
        self.counts = {"a": 4, "b": 3}
        self.driver.change_topics(**self.counts)
        self.members: list[Member] = []
        self.classic: list[ClassicConsumer] = []
        self.names = 0

    @property
    def group(self) -> ConsumerGroup | None:
        return self.driver.shard.consumer_groups.get("g")

    # -- events ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        events = [self.join, self.change_topics, self.lose_response, self.leave, self.hang, self.crash, self.fail]
        weights = [4, 1, 3, 1, 1, 1, 1]
        events += [self.restart, self.subscribe, self.join_classic, self.leave_classic, self.beat]
        weights += [1, 1, 1, 1, 20]
        self.random.choices(events, weights)[0]()
        self.driver.advance(self.random.choice([0, 100, 1_000, 5_000]))
        self.check()

    def join(self) -> None:
        if len(self.members) >= 6:
            return
        self.names += 1
        topics = self.random.sample(TOPICS, self.random.randint(1, 3))
        instance = self.random.choice([None, None, "i1", "i2"])
        assignor = self.random.choice([None, "uniform", "range"])
        member = Member(self.driver, f"m{self.names}", *topics, instance_id=instance, assignor=assignor)
        if member.beat() is ErrorCode.NONE:
            self.members = [other for other in self.members if instance is None or other.instance_id != instance]
            self.members.append(member)

    def beat(self) -> None:
        for member in self.members:
            self.obey(member)
        for joiner in self.classic:
            joiner.beat()

    def obey(self, member: Member) -> None:
        if member.beat() is ErrorCode.FENCED_INSTANCE_ID:
            self.members = [other for other in self.members if other is not member]

    def lose_response(self) -> None:
        if self.members:
            self.random.choice(self.members).lose_response()

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            member.leave(-2 if member.instance_id is not None and self.random.random() < 0.5 else -1)

    def crash(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members)))

    def hang(self) -> None:
        """Let a member keep its partitions for a while."""
        if self.members:
            member = self.random.choice(self.members)
            member.clings = not member.clings

    def subscribe(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            member.topics = self.random.sample(TOPICS, self.random.randint(1, 3))
            member.beat(full=True)

    def change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.driver.image.topics_by_name and self.random.random() < 0.3:
            self.driver.change_topics(**{name: 0})
        elif self.counts.get(name, 0) < 10:
            # The driver's topics keep their ids, so that a recreated one must not have fewer partitions.
            self.counts[name] = self.counts.get(name, 0) + self.random.randint(1, 3)
            self.driver.change_topics(**{name: self.counts[name]})

    def fail(self) -> None:
        """Let appends fail for one round of heartbeats."""
        self.driver.append_error = self.random.choice([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
        self.beat()
        self.driver.append_error = ErrorCode.NONE

    def restart(self) -> None:
        self.driver.restart()

    def join_classic(self) -> None:
        """Only consumer groups: a classic group would need a leader."""
        if len(self.classic) < 2 and self.group is not None and not self.group.is_empty:
            joiner = ClassicConsumer(self.driver, *self.random.sample(TOPICS, 2))
            joiner.enter()
            self.classic.append(joiner)

    def leave_classic(self) -> None:
        if self.classic:
            self.classic.pop(self.random.randrange(len(self.classic))).leave()

    # -- checks ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.members:
            stored = group.members.get(member.member_id)
            # A member that was removed, or missed a response, learns with its next heartbeat what it lost.
            if stored is None or member.epoch != stored.epoch or member.clings:
                continue
            for topic, partitions in member.owned.items():
                for partition in partitions:
                    other = owners.setdefault((topic, partition), member.member_id)
                    assert other == member.member_id, f"{other} and {member.member_id} own {topic!r}-{partition}"
        for (topic, partition), member_id in owners.items():
            assert group.owner(topic, partition) in (None, member_id)

    def check_replay(self) -> None:
        before = self.driver.ask(DescribeConsumerGroup("g"))
        shard = self.driver.replayed()
        replayed = shard.consumer_groups.get("g")
        assert (replayed is None) == (self.group is None)
        if replayed is not None and self.group is not None:
            assert replayed.members == self.group.members
            assert replayed.target.by_member == self.group.target.by_member
            assert (replayed.epoch, replayed.target.epoch) == (before.group_epoch, before.assignment_epoch)
            replayed.validate()

    def check_recovery(self) -> None:
        """Left alone, all partitions get an owner."""
        for joiner in self.classic:
            joiner.leave()
        self.classic = []
        for member in self.members:
            member.clings = False
        if not self.members:
            self.members.append(Member(self.driver, "last", "a"))
        for _ in range(40):
            self.driver.advance(5_000)
            for member in list(self.members):
                self.obey(member)
        group = self.group
        assert group is not None
        assert group.state_name == "Stable"
        topics = {name for member in self.members for name in member.topics or ()}
        image = self.driver.image.topics_by_name
        expected = {(topic_id(n), p) for n in topics if n in image for p in image[n].partitions}
        owned = [(t, p) for member in self.members for t, parts in member.owned.items() for p in parts]
        assert sorted(owned) == sorted(expected), "each partition has one owner"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_partitions_have_one_owner_and_all_get_one(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.check_replay()
    world.check_recovery()
