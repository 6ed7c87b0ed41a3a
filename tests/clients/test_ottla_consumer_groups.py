"""Ottla's consumer with group.protocol=consumer (KIP-848): the broker assigns the partitions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable

import confluent_kafka
import pytest

from ottla.clients import Admin, AsyncConsumer, Consumer, SubscriptionPattern, TopicPartition
from ottla.clients.admin import GroupState, GroupType, NewTopic
from ottla.clients.errors import BrokerError, ConfigurationError, UnknownMember
from ottla.common.errors import ErrorCode
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, Member, rebalance_story, unique, wait_until
from .test_confluent_groups import ConfluentMember
from .test_ottla_consumer import OurMember, numbered, poll_all, produce, values

pytestmark = pytest.mark.both


class BrokerAssigned(Member):
    """A member whose partitions the broker assigns, with auto-commit."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: object) -> None:
        super().__init__()
        self.topic = topic
        self.told: list[tuple[str, list[int]]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **options,
            }
        )

    def tell(self, kind: str, partitions: Iterable[TopicPartition]) -> None:
        rows = [tp.partition for tp in partitions]
        self.told.append((kind, rows))
        (self.assigned if kind == "assigned" else self.revoked)(rows)

    def run(self) -> None:
        with self.consumer as consumer:
            consumer.subscribe(
                self.topic,
                on_assigned=lambda tps: self.tell("assigned", tps),
                on_revoked=lambda tps: self.tell("revoked", tps),
                on_lost=lambda tps: self.tell("lost", tps),
            )
            while not self.stopping.is_set():
                for record in consumer.poll(0.1):
                    self.saw(record.partition, record.offset)


class Story:
    """A topic with six partitions and a group."""

    def __init__(self, broker: RunningBroker, make_topic: MakeTopic) -> None:
        self.broker = broker
        self.topic, self.group = make_topic(6), unique("group")
        self._sent = 0
        self.joined = 0

    def send(self, count: int) -> None:
        for partition in range(6):
            produce(self.broker.bootstrap, self.topic, numbered(count, self._sent), partition)
        self._sent += count

    def ours(self, **options: object) -> Member:
        self.joined += 1
        return BrokerAssigned(self.broker.bootstrap, self.topic, self.group, **options).start()

    def classic(self) -> Member:
        self.joined += 1
        options = {"partition.assignment.strategy": "cooperative-sticky"}
        member = OurMember(self.broker.bootstrap, self.topic, self.group, **options).start()
        if self.joined == 1:
            # Stock Kafka 4.3 cannot migrate a classic group before its first assignment (UNKNOWN_SERVER_ERROR).
            wait_until(lambda: len(member.owned()) == 6, "the classic member owns all partitions")
        return member

    def librdkafka(self) -> Member:
        self.joined += 1
        theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        return ConfluentMember(theirs, self.topic).start()


@pytest.mark.parametrize("assignor", [None, "range"])
def test_members_share_a_group_and_read_each_record_once(
    broker: RunningBroker, make_topic: MakeTopic, assignor: str | None
) -> None:
    story = Story(broker, make_topic)
    rebalance_story(lambda: story.ours(**{"group.remote.assignor": assignor}), story.send)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_members_share_a_group_with_librdkafka(broker: RunningBroker, make_topic: MakeTopic, first: str) -> None:
    story = Story(broker, make_topic)
    parity = 0 if first == "ours" else 1
    rebalance_story(lambda: story.ours() if story.joined % 2 == parity else story.librdkafka(), story.send)


@pytest.mark.parametrize("first", ["classic", "consumer"])
def test_group_migrates_with_members_of_both_protocols(
    broker: RunningBroker, make_topic: MakeTopic, first: str
) -> None:
    story = Story(broker, make_topic)
    parity = 0 if first == "classic" else 1
    rebalance_story(lambda: story.classic() if story.joined % 2 == parity else story.ours(), story.send)


KILLED = """
import sys, time
from ottla.clients import Consumer
bootstrap, topic, group = sys.argv[1:]
consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, group_protocol="consumer")
consumer.subscribe(topic)
while not consumer.assignment():
    consumer.poll(0.1)
consumer.commit()
print(len(consumer.assignment()), flush=True)
time.sleep(60)
"""


def test_partitions_of_a_killed_member_move_after_its_session(broker: RunningBroker, make_topic: MakeTopic) -> None:
    story = Story(broker, make_topic)
    command = [sys.executable, "-c", KILLED, broker.bootstrap, story.topic, story.group]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "6"
        process.kill()
        story.send(2)
        heir = story.ours()
        wait_until(lambda: heir.owned() == set(range(6)), "the other member owns all partitions")
        wait_until(lambda: len(heir.read()) == 12, "it reads all records")
        heir.stop()
        assert len(set(heir.read())) == 12
    finally:
        process.kill()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


def test_member_that_does_not_poll_in_time_leaves_and_returns(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(2), unique("group")
    produce(broker.bootstrap, topic, numbered(4))
    told: list[str] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap, group_id=group, group_protocol="consumer", auto_offset_reset="earliest",
        max_poll_interval_ms=1_000, enable_auto_commit=False, max_poll_records=2,
    ) as slow:  # fmt: skip
        slow.subscribe(topic, on_assigned=lambda _: told.append("assigned"), on_lost=lambda _: told.append("lost"))
        first = poll_all(slow, 2)
        other = BrokerAssigned(broker.bootstrap, topic, group).start()
        wait_until(lambda: other.owned() == {0, 1}, "the other member owns all partitions")
        with pytest.raises(UnknownMember, match=r"max\.poll\.interval\.ms"):
            slow.commit()
        wait_until(lambda: len(other.read()) == 4, "the other member reads all records again")
        other.stop()
        assert values(first) == [b"0", b"1"]
        deadline = time.monotonic() + WAIT_S
        while len(told) < 3:
            assert slow.poll(0.1) == []
            assert time.monotonic() < deadline
        assert told == ["assigned", "lost", "assigned"]


def test_broker_matches_the_subscription_pattern(broker: RunningBroker, make_topic: MakeTopic) -> None:
    one, two, group = make_topic(1), make_topic(1), unique("group")
    for topic in (one, two):
        produce(broker.bootstrap, topic, numbered(2))
    with Consumer(
        bootstrap_servers=broker.bootstrap, group_id=group, group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern("("))
        with pytest.raises(BrokerError, match="RE2") as refused:
            poll_all(consumer, 1)
        assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        consumer.unsubscribe()
        consumer.subscribe(pattern=SubscriptionPattern(f"{one}|{two}x"))
        assert {record.topic for record in poll_all(consumer, 2)} == {one}
        assert consumer.subscription() == [one]
        consumer.subscribe([two])
        assert {record.topic for record in poll_all(consumer, 2)} == {two}
        wait_until(lambda: not consumer.poll(0.1) and consumer.subscription() == [two], "only the topic is left")
        assert consumer.assignment() == [TopicPartition(two, 0)]


def test_static_member_returns_to_its_partitions_without_a_rebalance(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    story = Story(broker, make_topic)
    stays, leaves = story.ours(), story.ours(**{"group.instance.id": "one"})
    wait_until(lambda: len(stays.owned()) == len(leaves.owned()) == 3, "each member owns three partitions")
    owned = leaves.owned()
    told = len(stays.told)  # type: ignore[attr-defined]
    second = Consumer(
        bootstrap_servers=broker.bootstrap, group_id=story.group, group_protocol="consumer", group_instance_id="one"
    )
    second.subscribe(story.topic)
    with pytest.raises(BrokerError, match=r"group\.instance\.id=one: close it") as refused:
        poll_all(second, 1)
    assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    second.close()
    leaves.stop()
    again = story.ours(**{"group.instance.id": "one"})
    wait_until(lambda: again.owned() == owned, "the new process owns the same partitions")
    again.stop()
    stays.stop()
    assert stays.told[told:] == [("revoked", sorted({0, 1, 2, 3, 4, 5} - owned))]  # type: ignore[attr-defined]


def test_admin_describes_a_group_whose_partitions_the_broker_assigns(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    story = Story(broker, make_topic)
    story.send(1)
    member = story.ours(**{"client.id": "reader"})
    wait_until(lambda: len(member.read()) == 6, "it reads all records")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        (listed,) = [group for group in admin.list_groups(types=[GroupType.CONSUMER]) if group.group_id == story.group]
        assert listed.state is GroupState.STABLE
        described = admin.describe_group(story.group)
        assert (described.type, described.assignor) == (GroupType.CONSUMER, "uniform")
        assert described.epoch == described.assignment_epoch
        (one,) = described.members
        assert (one.client_id, one.topics, one.epoch) == ("reader", (story.topic,), described.epoch)
        assert one.assignment == one.target == tuple(TopicPartition(story.topic, i) for i in range(6))
        shown = run_ottla(broker, "describe", story.group)
        assert f"consumer group at epoch {described.epoch}" in shown
        assert "EPOCH" in shown
        assert f"{story.group} " in run_ottla(broker, "list", "--type", "consumer")
        member.stop()
        run_ottla(broker, "reset", story.group, "--to-earliest", "--execute")
        assert {at.offset for at in admin.list_group_offsets(story.group).values()} == {0}
        run_ottla(broker, "delete", story.group, "--yes")
        assert story.group not in {group.group_id for group in admin.list_groups()}


def run_ottla(broker: RunningBroker, *arguments: str) -> str:
    command = [sys.executable, "-m", "ottla", "group", *arguments, "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_asyncio_consumer_reads_in_a_group(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(1), unique("group")
    produce(broker.bootstrap, topic, numbered(3))

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, group_protocol="consumer", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic])
            while len(found) < 3:
                found += [record.value for record in await consumer.poll(1.0)]
            assert consumer.group_metadata().generation > 0
        return found

    assert asyncio.run(asyncio.wait_for(read(), WAIT_S)) == [b"0", b"1", b"2"]
    with Consumer(
        bootstrap_servers=broker.bootstrap, group_id=group, group_protocol="consumer", auto_offset_reset="earliest"
    ) as again:
        assert again.committed([(topic, 0)])[TopicPartition(topic, 0)].offset == 3  # type: ignore[union-attr]


def test_pattern_of_the_broker_needs_its_protocol(broker: RunningBroker) -> None:
    with (
        Consumer(bootstrap_servers=broker.bootstrap, group_id="any") as consumer,
        pytest.raises(ConfigurationError, match=r"group\.protocol=consumer"),
    ):
        consumer.subscribe(pattern=SubscriptionPattern("x"))


def test_commit_for_a_deleted_topic_does_not_count_for_another_of_the_same_name(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), unique("g")
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbered(3))
    with (
        Consumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False) as consumer,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        # Without a poll it fetches nothing, and does not learn that the topic was deleted.
        consumer.assign([tp])
        consumer.commit({tp: 1})
        assert consumer.committed([tp])[tp].offset == 1  # type: ignore[union-attr]
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), "the topic is deleted")
        admin.create_topics([NewTopic(topic, 1)])
        with pytest.raises(BrokerError) as raised:
            consumer.commit({tp: 3})
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert consumer.committed([tp])[tp] is None
