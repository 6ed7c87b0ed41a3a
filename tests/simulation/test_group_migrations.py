"""One group under a seed whose members change the protocol: the machines of the real clients, both kinds of groups.

Processes of the classic and of the consumer protocol (KIP-848) start, stop, crash, hang and return as static members
of the other protocol; topics come, grow and go; responses are lost, appends fail, and the coordinator restarts. After
every event:

- at most one process owns a partition and is allowed to commit for it, now and per assignment epoch;
- the epoch of a group that has members never decreases, also when the group is converted.

Left alone, every partition of every subscribed topic has one owner, whatever the type of the group is by then.

`OTTLA_SEEDS=500 pytest tests/simulation/test_group_migrations.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import os
import random

import pytest

from ottla.clients.errors import BrokerError
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.coordinators.group import Effects, GroupConfig
from ottla.coordinators.group.consumer.config import ConsumerGroupConfig
from ottla.coordinators.group.states import State
from tests.drivers.groups import GroupDriver
from tests.simulation.world.group_members import POLL_MS, SESSION_MS, GroupProcess

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
STEPS = 400
TOPICS = ("a", "b", "c")
INSTANCES = (None, None, "i", "j")
# A static member that returns to a classic group with other topics causes no rebalance, so its topics are fixed.
STATIC_TOPICS = {"i": ["a", "b"], "j": ["b", "c"]}
# A process ends with one of these: another one has its instance id, or the group is of the other type now.
FATAL = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND}
SETTLE_MS = 4 * (SESSION_MS + POLL_MS)


class WatchedDriver(GroupDriver):
    """Follows the epoch of the group."""

    def __init__(self, config: GroupConfig, seed: int) -> None:
        self.lives = 0
        """How often the epoch began again: the group had no members, or the coordinator restarted."""
        self.epoch: int | None = None
        self.kind = ""
        self.conversions: list[str] = []
        super().__init__(config, seed)

    def obey(self, effects: Effects) -> None:
        super().obey(effects)
        classic, consumer = self.shard.groups.get("g"), self.shard.consumer_groups.get("g")
        epoch, kind = None, self.kind
        if classic is not None and classic.members:
            epoch, kind = classic.generation, "classic"
        elif consumer is not None and consumer.members:
            epoch, kind = consumer.epoch, "consumer"
        if epoch is None or self.epoch is None:
            self.lives += 1
        else:
            assert epoch >= self.epoch, f"from {self.kind} epoch {self.epoch} to {kind} epoch {epoch}"
            self.conversions += [kind] if kind != self.kind else []
        self.epoch, self.kind = epoch, kind

    def restart(self) -> None:
        self.epoch = None  # a generation whose assignment was not written is lost
        super().restart()


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        consumer = ConsumerGroupConfig(
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=2_000,
            assignment_interval_ms=self.random.choice((0, 1_000)),
        )
        self.driver = WatchedDriver(GroupConfig(consumer=consumer), seed)
        self.counts = {"a": 4, "b": 2}
        self.driver.change_topics(**self.counts)
        self.assignor = self.random.choice(("range", "cooperative-sticky"))
        self.processes: list[GroupProcess] = []
        self.silent_until_ms: dict[GroupProcess, int] = {}
        self.owners: dict[tuple[int, int, TopicPartition], str] = {}
        self.names = 0

    # -- events --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.driver.advance(self.random.choice((50, 200, 500, 1_000)))
        self.check()
        for process in list(self.processes):
            if self.silent_until_ms.get(process, 0) > self.driver.now_ms:
                continue
            if self.random.random() < 0.3:
                process.refresh()
            process.run(lost=self.random.random() < 0.03)
            self.check()
            if self.random.random() < 0.7:
                process.poll()
                process.run()
                self.check()
        self.remove_failed()
        if self.random.random() < 0.35:
            self.disturb()
            self.check()

    def disturb(self) -> None:
        events = [self.start, self.stop, self.crash, self.pause, self.change_topics, self.subscribe, self.migrate]
        weights = [6, 3, 1, 3, 1, 1, 5]
        self.random.choices([*events, self.fail, self.restart], [*weights, 1, 1])[0]()

    def start(self, name: str | None = None, is_classic: bool | None = None) -> None:
        if len(self.processes) >= 6:
            return
        instance_id = name or self.random.choice(INSTANCES)
        self.names += 1
        classic = self.random.random() < 0.5 if is_classic is None else is_classic
        topics = self.random.sample(TOPICS, self.random.randint(1, 3))
        process = GroupProcess(
            self.driver,
            f"{instance_id}-{self.names}" if instance_id is not None else f"m{self.names}",
            topics if instance_id is None else STATIC_TOPICS[instance_id],
            assignor=self.assignor if classic else None,
            instance_id=instance_id,
        )
        self.processes.append(process)
        process.poll()
        process.run()

    def stop(self) -> None:
        if self.processes:
            self.processes.pop(self.random.randrange(len(self.processes))).stop()

    def crash(self) -> None:
        if self.processes:
            self.processes.pop(self.random.randrange(len(self.processes)))

    def migrate(self) -> None:
        """Restart a process with the other protocol, as an operator does."""
        if not self.processes:
            return
        process = self.processes.pop(self.random.randrange(len(self.processes)))
        if self.random.random() < 0.8:
            process.stop()
        topics = process.topics
        self.start(process.instance_id, not process.is_classic)
        if self.random.random() < 0.8 and process.instance_id is None:
            self.processes[-1].subscribe(topics)

    def pause(self) -> None:
        """A process does nothing for a while, possibly longer than its session."""
        if self.processes:
            until_ms = self.driver.now_ms + self.random.choice((1_000, 5_000, 2 * SESSION_MS))
            self.silent_until_ms[self.random.choice(self.processes)] = until_ms

    def subscribe(self) -> None:
        dynamic = [process for process in self.processes if process.instance_id is None]
        if dynamic:
            topics = self.random.sample(TOPICS, self.random.randint(1, 3))
            self.random.choice(dynamic).subscribe(topics)

    def change_topics(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.driver.image.topics_by_name and self.random.random() < 0.3:
            self.driver.change_topics(**{name: 0})
        elif self.counts.get(name, 0) < 8:
            # The driver's topics keep their ids, so that a recreated one must not have fewer partitions.
            self.counts[name] = self.counts.get(name, 0) + self.random.randint(1, 2)
            self.driver.change_topics(**{name: self.counts[name]})

    def fail(self) -> None:
        """Let appends fail for one round."""
        self.driver.append_error = self.random.choice([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
        for process in self.processes:
            process.run()
        self.driver.append_error = ErrorCode.NONE

    def restart(self) -> None:
        self.driver.restart()
        for process in self.processes:
            process.disconnect()

    def remove_failed(self) -> None:
        for process in list(self.processes):
            error = process.member.error
            if error is not None:
                assert isinstance(error, BrokerError), error
                assert error.code in FATAL, error
                self.processes.remove(process)

    # -- checks --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        now: dict[TopicPartition, str] = {}
        for process in self.processes:
            for partition in process.committable():
                other = now.setdefault(partition, process.name)
                assert other == process.name, f"{other} and {process.name} may commit for {partition}"
                key = (self.driver.lives, process.member.generation, partition)
                # The successor of a static member has its partitions in the same epoch.
                owner = process.instance_id or process.name
                other = self.owners.setdefault(key, owner)
                assert other == owner, f"{other} and {owner} owned {partition} in epoch {key[1]}"

    def settle(self) -> None:
        """Left alone, all partitions get an owner."""
        self.silent_until_ms.clear()
        self.start()
        until_ms = self.driver.now_ms + SETTLE_MS
        while self.driver.now_ms < until_ms:
            self.driver.advance(500)
            for process in self.processes:
                process.refresh()
                process.run()
                process.poll()
                process.run()
                self.check()
            self.remove_failed()
            if not self.processes:
                self.start()
        image = self.driver.image.topics_by_name
        topics = {name for process in self.processes for name in process.topics if name in image}
        expected = [TopicPartition(name, p) for name in topics for p in image[name].partitions]
        owned = [tp for process in self.processes for tp in process.member.owned]
        assert sorted(owned) == sorted(expected), f"{self.driver.kind} group: each partition has one owner"
        assert sorted(tp for process in self.processes for tp in process.committable()) == sorted(expected)
        shard = self.driver.shard
        if "g" in shard.consumer_groups:
            assert shard.consumer_groups["g"].state_name == "Stable"
        elif self.processes:
            assert shard.groups["g"].state is State.STABLE


@pytest.mark.parametrize("seed", range(SEEDS))
def test_partitions_have_one_owner_while_a_group_changes_its_protocol(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    if seed == 0:
        assert world.driver.conversions, "a simulation that converts no group proves nothing"
