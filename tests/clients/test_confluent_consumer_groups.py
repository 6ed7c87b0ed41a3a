"""confluent-kafka (librdkafka) with `group.protocol=consumer` (KIP-848): the broker assigns the partitions."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Sent, share, unique, wait_until
from .test_confluent import producer, read, send
from .test_confluent_groups import ConfluentMember


def member(broker: RunningBroker, group: str, **config: object) -> Consumer:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "group.protocol": "consumer",
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "log_level": 2,
    }
    return Consumer(settings | {name.replace("_", "."): value for name, value in config.items()})


@pytest.mark.both
def test_members_share_a_topic_while_one_joins_and_one_leaves(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    client = producer(broker)
    for partition in range(4):
        send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * 5, partition)
    first = ConfluentMember(member(broker, group), topic).start()
    second = None
    try:
        wait_until(lambda: first.owned() == {0, 1, 2, 3} and len(first.read()) == 20, "the first member reads all")
        second = ConfluentMember(member(broker, group, group_instance_id="static"), topic).start()
        wait_until(lambda: share([first, second], 4), "two members share the partitions")
        for partition in range(4):
            send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * 5, partition)
        wait_until(lambda: len(first.read()) + len(second.read()) == 40, "every record is read once")
        first.stop()
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert str(described.type).endswith("CONSUMER")
        wait_until(lambda: second.owned() == {0, 1, 2, 3}, "the member that stayed has all partitions")
    finally:
        first.stop()
        if second is not None:
            second.stop()
    late = member(broker, group)
    committed = late.committed([TopicPartition(topic, partition) for partition in range(4)], WAIT_S)
    late.close()
    assert sum(max(row.offset, 0) for row in committed) == 40, "each member committed what it read"


@pytest.mark.both
def test_static_members_change_the_protocol_one_by_one_and_return(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    """A rolling restart: the member that replaces the last one of the consumer protocol makes the group classic."""
    topic, group = make_topic(partitions=4), unique("group")
    client, rounds = producer(broker), 0
    members: list[ConfluentMember] = []
    left: list[ConfluentMember] = []

    def restart(name: str, protocol: str) -> None:
        nonlocal rounds
        index = ["one", "two"].index(name)
        if index < len(members):
            members[index].stop()
            left.append(members.pop(index))
        config = {"group_instance_id": name, "group_protocol": protocol, "session_timeout_ms": 45_000}
        if protocol == "consumer":
            del config["session_timeout_ms"]
        else:
            config["partition_assignment_strategy"] = "cooperative-sticky"
        members.insert(index, ConfluentMember(member(broker, group, **config), topic).start())
        wait_until(lambda: share(members, 4) or len(members) == 1, "the members share the partitions")
        rounds += 1
        for partition in range(4):
            send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * 2, partition)

    def group_type() -> str:
        return str(admin.describe_consumer_groups([group])[group].result(WAIT_S).type).rpartition(".")[2]

    try:
        for protocol, types in (("consumer", "CONSUMER"), ("classic", "CLASSIC"), ("consumer", "CONSUMER")):
            for name in ("one", "two"):
                restart(name, protocol)
            wait_until(lambda expected=types: group_type() == expected, f"the group is {types}")
        wait_until(lambda: sum(len(m.read()) for m in members + left) == rounds * 8, "every record is read")
    finally:
        for each in members:
            each.stop()
    seen = [row for each in members + left for row in each.read()]
    assert len(seen) == len(set(seen)), "a record was read twice"


@pytest.mark.both
def test_subscription_by_regular_expression_finds_new_topics(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(producer(broker), topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * 3, 0)
    consumer = member(broker, unique("group"))
    consumer.subscribe([f"^{topic[:-1]}.$"])
    try:
        assert len(read(consumer, 3, timeout_s=WAIT_S)) == 3
    finally:
        consumer.close()
