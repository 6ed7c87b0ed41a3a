"""Each fault with real clients: what the client makes of it, what the log has afterwards, what the fault tells."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from ottla.clients import Consumer, CorruptRecords, GroupAuthorizationFailed, IllegalGeneration, Producer
from ottla.testing import Ottla

from .clients import Client, each_client

VALUES = [f"value {n}".encode() for n in range(20)]


def values(ottla: Ottla, topic: str, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in ottla.records(topic, partition)]


def poll_for_long(consumer: Consumer, found: list[bytes]) -> None:
    for _ in range(100):
        found += [record.value for record in consumer.poll(0.1)]


@each_client
def test_an_answer_that_is_lost_doubles_nothing_for_an_idempotent_producer(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    swallowed = ottla.faults.swallow("Produce", times=2)
    client.send(ottla.bootstrap, topic, VALUES)
    assert values(ottla, topic) == VALUES
    assert swallowed.count == 2
    assert {hit.client_id for hit in swallowed.hits} == {client.name}
    assert ottla.requests["Produce"] >= 3


@pytest.mark.parametrize("client", ["kafka-python", "ottla"])
def test_and_doubles_for_one_that_is_not(ottla: Ottla, client: str) -> None:
    topic = ottla.topic()
    ottla.faults.swallow("Produce")
    if client == "ottla":
        with Producer(bootstrap_servers=ottla.bootstrap, enable_idempotence=False, retry_backoff_ms=20) as producer:
            producer.send(topic, b"once").result(10)
    else:
        from kafka import KafkaProducer

        theirs = KafkaProducer(
            bootstrap_servers=ottla.bootstrap, enable_idempotence=False, acks="all", retries=5, retry_backoff_ms=20
        )
        theirs.send(topic, b"once").get(10)
        theirs.close(5)
    assert values(ottla, topic) == [b"once", b"once"]


@each_client
def test_a_produce_that_is_refused_for_a_while_arrives_in_order(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    with ottla.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=topic) as refused:
        client.send(ottla.bootstrap, topic, VALUES)
        assert refused.count == 2
    assert values(ottla, topic) == VALUES


@each_client
def test_an_error_that_no_retry_helps_reaches_the_caller(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None, topic=topic)
    with pytest.raises(Exception, match=r"(?i)authoriz"):
        client.send(ottla.bootstrap, topic, [b"x"])
    assert values(ottla, topic) == []


@each_client
def test_a_dropped_connection_before_the_request_took_effect(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.faults.disconnect("Produce", times=2, client_id=client.name)
    client.send(ottla.bootstrap, topic, VALUES)
    assert values(ottla, topic) == VALUES


@each_client
def test_a_slow_answer(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.faults.delay("Produce", 0.3, topic=topic)
    began = time.monotonic()
    client.send(ottla.bootstrap, topic, [b"x"])
    assert time.monotonic() - began > 0.3
    assert values(ottla, topic) == [b"x"]


@each_client
def test_a_consumer_reads_on_through_errors_and_lost_connections(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *VALUES)
    ottla.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2, topic=topic)
    ottla.faults.disconnect("Fetch")
    ottla.faults.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=2)
    ottla.faults.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    ottla.faults.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS")
    ottla.faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", may_miss=True)
    assert client.read(ottla.bootstrap, topic, 20, group="g") == VALUES
    ottla.wait_for_lag("g", 0, topic=topic)


@each_client
def test_a_moved_leader(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.faults.move_leader(topic)
    client.send(ottla.bootstrap, topic, VALUES)
    ottla.faults.move_leader(topic)
    assert client.read(ottla.bootstrap, topic, 20, group="g") == VALUES


@pytest.mark.parametrize("client", ["confluent", "ottla"])
def test_a_forced_rebalance_loses_and_doubles_nothing(ottla: Ottla, client: str) -> None:
    topic = ottla.topic(partitions=2)
    ottla.produce(topic, *VALUES)
    seen: Counter[bytes] = Counter()
    revoked: list[object] = []
    stop = threading.Event()

    def ours() -> None:
        with Consumer(
            bootstrap_servers=ottla.bootstrap, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=100
        ) as consumer:
            consumer.subscribe([topic], on_revoked=revoked.append)
            while not stop.is_set():
                seen.update(record.value for record in consumer.poll(0.05))

    def theirs() -> None:
        from confluent_kafka import Consumer as Confluent

        consumer = Confluent(
            {
                "bootstrap.servers": ottla.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 100,
                "log_level": 2,
            }
        )
        consumer.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(partitions))
        while not stop.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                seen[message.value()] += 1
        consumer.close()

    thread = threading.Thread(target=ours if client == "ottla" else theirs)
    thread.start()
    try:
        ottla.wait_until(lambda: len(seen) == 20)
        joins = ottla.requests["JoinGroup"]
        ottla.faults.rebalance("g")
        ottla.wait_until(lambda: ottla.requests["JoinGroup"] > joins and ottla.group("g").state == "Stable")
        ottla.produce(topic, "after")
        ottla.wait_until(lambda: seen[b"after"])
    finally:
        stop.set()
        thread.join(20)
    assert revoked
    assert set(seen.values()) == {1}


def test_a_member_that_slept_too_long_is_thrown_out_by_the_moved_clock(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "1")
    lost: list[object] = []
    with Consumer(
        bootstrap_servers=ottla.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        session_timeout_ms=30_000,
        heartbeat_interval_ms=200,
    ) as consumer:
        consumer.subscribe([topic], on_lost=lost.append)
        ottla.wait_until(lambda: consumer.poll(0.05))
        assert len(ottla.group("g").members) == 1
        before = ottla.group("g").members[0][0]
        ottla.clock.advance(31)
        assert ottla.group("g").members == []
        ottla.wait_until(lambda: consumer.poll(0.05) or ottla.group("g").members)
        assert ottla.group("g").members[0][0] != before
        ottla.wait_until(lambda: consumer.poll(0.05) or lost)


def test_drop_connections_drops_the_connections_of_one_client(ottla: Ottla) -> None:
    topic = ottla.topic()
    with (
        Producer(bootstrap_servers=ottla.bootstrap, client_id="a") as a,
        Producer(bootstrap_servers=ottla.bootstrap, client_id="b") as b,
    ):
        for producer in (a, b):
            producer.send(topic, b"1").result(10)
        requests = ottla.requests.count("ApiVersions", client_id="b")
        dropped = ottla.faults.drop_connections(client_id="a")
        assert dropped.count >= 1
        for producer in (a, b):
            producer.send(topic, b"2").result(10)
        assert ottla.requests.count("ApiVersions", client_id="b") == requests
    assert values(ottla, topic) == [b"1", b"1", b"2", b"2"]


def test_one_partition_of_a_request_fails_and_the_others_are_served(ottla: Ottla) -> None:
    topic = ottla.topic(partitions=3)
    fault = ottla.faults.fail("Produce", "MESSAGE_TOO_LARGE", topic=topic, partition=1)
    outcomes = []
    with Producer(bootstrap_servers=ottla.bootstrap, linger_ms=100) as producer:
        deliveries = [producer.send(topic, b"x", partition=partition) for partition in range(3)]
        outcomes = [delivery.exception(10) for delivery in deliveries]
    assert [type(outcome).__name__ for outcome in outcomes] == ["NoneType", "MessageTooLarge", "NoneType"]
    assert [len(ottla.records(topic, partition)) for partition in range(3)] == [1, 0, 1]
    assert fault.hits[0].about == f"{topic}-1"


def test_a_fetch_fails_for_one_partition_also_in_a_session(ottla: Ottla) -> None:
    topic = ottla.topic(partitions=2)
    with Consumer(bootstrap_servers=ottla.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        ottla.produce(topic, "a", "b")
        found: list[bytes] = []
        ottla.wait_until(lambda: found.extend(r.value for r in consumer.poll(0.05)) or len(found) == 2)
        with ottla.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None, topic=topic, partition=1) as fault:
            ottla.produce(topic, "c", partition=0)
            ottla.produce(topic, "d", partition=1)
            ottla.wait_until(lambda: found.extend(r.value for r in consumer.poll(0.05)) or b"c" in found)
            fault.wait(1)
            assert b"d" not in found
        ottla.wait_until(lambda: found.extend(r.value for r in consumer.poll(0.05)) or b"d" in found)
    assert sorted(found) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("size", [1, 100_000], ids=["small", "read when it is sent"])
def test_corrupt_batch_is_reported_and_can_be_skipped(ottla: Ottla, size: int) -> None:
    topic = ottla.topic()
    a, b, c = (letter * size for letter in ("a", "b", "c"))
    for value in (a, b, c):
        ottla.produce(topic, value)
    ottla.faults.corrupt(topic, offset=1)
    with Consumer(bootstrap_servers=ottla.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        with pytest.raises(CorruptRecords, match=topic) as raised:
            poll_for_long(consumer, found)
        assert found == [a.encode()]
        assert "1" in str(raised.value)
        consumer.seek((topic, 0), 2)
        ottla.wait_until(lambda: found.extend(r.value for r in consumer.poll(0.05)) or len(found) == 2)
        assert found == [a.encode(), c.encode()]


def test_a_batch_that_was_corrupt_on_its_way_once_is_read_by_stock_clients(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "a")
    from confluent_kafka import Consumer as Confluent

    ottla.faults.corrupt(topic, times=1)
    consumer = Confluent(
        {
            "bootstrap.servers": ottla.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    outcomes = []
    deadline = time.monotonic() + 20
    while b"a" not in outcomes and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            outcomes.append(message.error().name() if message.error() else message.value())
    consumer.close()
    assert outcomes[-1] == b"a"


def test_a_batch_corrupt_on_disk_stays_so(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "a")
    ottla.faults.corrupt(topic, on_disk=True)
    with Consumer(bootstrap_servers=ottla.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(CorruptRecords, match=topic):
            poll_for_long(consumer, [])


def test_metadata_that_lies_for_a_while(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2, topic=topic)
    with Producer(bootstrap_servers=ottla.bootstrap, retry_backoff_ms=20) as producer:
        producer.send(topic, b"x").result(10)
    assert values(ottla, topic) == [b"x"]


def test_a_request_that_is_never_answered_is_sent_again_after_its_timeout(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.faults.swallow("Produce", close=False)
    with Producer(bootstrap_servers=ottla.bootstrap, request_timeout_ms=400, retry_backoff_ms=20) as producer:
        producer.send(topic, b"x").result(10)
    assert values(ottla, topic) == [b"x"]


def test_misspelt_name_is_an_error_immediately(ottla: Ottla) -> None:
    with pytest.raises(ValueError, match="no API 'Prodcue'; similar: Produce"):
        ottla.faults.fail("Prodcue", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="no error 'NOT_LEEDER'"):
        ottla.faults.fail("Produce", "NOT_LEEDER")
    with pytest.raises(ValueError, match="names no topic"):
        ottla.faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS", topic="x")
    with pytest.raises(ValueError, match="has no members"):
        ottla.faults.rebalance("no-such-group")


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"])
def test_the_first_batch_of_a_producer_fails_and_the_order_is_kept(ottla: Ottla, error: str) -> None:
    """A broker takes any first sequence of a producer that it does not know: batches behind the first must wait."""
    topic = ottla.topic()
    ottla.faults.fail("Produce", error, topic=topic)
    with Producer(bootstrap_servers=ottla.bootstrap, linger_ms=50, batch_size=100, retry_backoff_ms=10) as producer:
        for delivery in [producer.send(topic, b"%050d" % n, partition=0) for n in range(60)]:
            delivery.result(10)
    assert values(ottla, topic) == [b"%050d" % n for n in range(60)]


def read_all(consumer: Consumer, topic: str, count: int) -> None:
    consumer.subscribe([topic])
    while count > 0:
        count -= len(consumer.poll(0.1))


def test_a_member_of_an_old_generation_comes_back_as_itself(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *VALUES)
    with Consumer(
        bootstrap_servers=ottla.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        read_all(consumer, topic, 20)
        before = [member for member, _, _ in ottla.group("g").members]
        ottla.faults.fail("OffsetCommit", "ILLEGAL_GENERATION")
        with pytest.raises(IllegalGeneration):
            consumer.commit()
        read_all(consumer, topic, 20)
        consumer.commit()
        assert [member for member, _, _ in ottla.group("g").members] == before


def test_a_consumer_that_an_error_ended_leaves_its_group(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *VALUES)
    with Consumer(
        bootstrap_servers=ottla.bootstrap, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=50
    ) as consumer:
        read_all(consumer, topic, 20)
        ottla.faults.fail("Heartbeat", "GROUP_AUTHORIZATION_FAILED")
        with pytest.raises(GroupAuthorizationFailed):
            poll_for_long(consumer, [])
    assert ottla.group("g").members == []
