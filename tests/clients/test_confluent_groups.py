"""confluent-kafka (librdkafka) in groups: rebalances, static members and fencing."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Member, Sent, rebalance_story, share, unique, wait_until
from .test_confluent import consumer, error_code, producer, read, send


class ConfluentMember(Member):
    """Commits when partitions are revoked, so that the group reads each record once."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        super().__init__()
        self._consumer = consumer
        self._topic = topic

    def run(self) -> None:
        try:
            self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
            while not self.stopping.is_set():
                message = self._consumer.poll(0.05)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.saw(message.partition(), message.offset())
        finally:
            self._consumer.close()  # revokes the partitions, which commits

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned(p.partition for p in partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        given_up = {p.partition for p in partitions}
        done = [TopicPartition(self._topic, p, end) for p, end in self.positions().items() if p in given_up]
        if done:
            consumer.commit(offsets=done, asynchronous=False)
        self.revoked(given_up)


@pytest.mark.both
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_shares_a_topic_while_members_join_and_leave(
    broker: RunningBroker, make_topic: MakeTopic, strategy: str
) -> None:
    topic = make_topic(partitions=6)
    group = unique("group")
    client = producer(broker)

    def produce(each: int) -> None:
        for partition in range(6):
            send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * each, partition)

    def join() -> ConfluentMember:
        return ConfluentMember(consumer(broker, group_id=group, partition_assignment_strategy=strategy), topic).start()

    rebalance_story(join, produce)


@pytest.mark.both
def test_static_member_gets_its_partitions_back_without_a_rebalance(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic(partitions=4)
    group = unique("group")

    def join(name: str) -> ConfluentMember:
        return ConfluentMember(consumer(broker, group_id=group, group_instance_id=name), topic).start()

    stays, goes = join("stays"), join("goes")
    try:
        wait_until(lambda: share([stays, goes], 4), "two static members share the partitions")
        owned, rebalances = goes.owned(), stays.assignments
        goes.stop()
        goes = join("goes")
        wait_until(lambda: goes.owned() == owned, "the static member has its partitions back")
        assert stays.assignments == rebalances, "the other member saw a rebalance"
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert {m.group_instance_id for m in described.members} == {"stays", "goes"}
    finally:
        stays.stop()
        goes.stop()


@pytest.mark.both
def test_second_consumer_with_the_same_instance_id_fences_the_first(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    group = unique("group")
    first = consumer(broker, group_id=group, group_instance_id="one")
    first.subscribe([topic])
    wait_until(lambda: first.poll(0.05) is None and bool(first.assignment()), "the first has its partition")
    second = consumer(broker, group_id=group, group_instance_id="one")
    second.subscribe([topic])
    wait_until(lambda: second.poll(0.05) is None and bool(second.assignment()), "the second has the partition")
    with pytest.raises(KafkaException) as fenced:
        read(first, 1, timeout_s=10)
    assert error_code(fenced) == KafkaError._FATAL
    assert "fenced" in fenced.value.args[0].str()
    first.close()
    second.close()


@pytest.mark.both
def test_member_that_stops_polling_loses_its_partitions(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic(partitions=2)
    group = unique("group")
    # It polls only once, so librdkafka leaves the group after max.poll.interval.ms.
    lazy = consumer(broker, group_id=group, max_poll_interval_ms=6000)
    lazy.subscribe([topic])
    wait_until(lambda: lazy.poll(0.05) is None and len(lazy.assignment()) == 2, "the lazy member has both partitions")
    busy = ConfluentMember(consumer(broker, group_id=group, session_timeout_ms=6000), topic).start()
    try:
        started = time.monotonic()
        wait_until(lambda: busy.owned() == {0, 1}, "the busy member has both partitions")
        assert time.monotonic() - started > 2, "the lazy one was not given its time"
    finally:
        busy.stop()
        # librdkafka may hang for ever in `close` if `poll` has not reported the loss of the partitions before.
        wait_until(lambda: lazy.poll(0.05) is not None, "the lazy member knows that it has left")
        lazy.close()


@pytest.mark.both
def test_commit_by_an_unknown_member_is_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = unique("group")
    member = ConfluentMember(consumer(broker, group_id=group), topic).start()
    try:
        wait_until(lambda: member.owned() == {0}, "a member of the group")
        stranger = consumer(broker, group_id=group)
        stranger.assign([TopicPartition(topic, 0, 0)])
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        assert error_code(refused) == KafkaError.UNKNOWN_MEMBER_ID
        stranger.close()
    finally:
        member.stop()
