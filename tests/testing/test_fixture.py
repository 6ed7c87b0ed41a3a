"""The fixture as a user has it: any client, topics of a test's own, helpers, restarts."""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from functools import partial

import pytest

from ottla.common.errors import KafkaError
from ottla.testing import BrokerError, NotInTime, Ottla, ProcessBroker, Record, ThreadBroker
from tests import deadlines

from .clients import Client, each_client

VALUES = [f"value {n}".encode() for n in range(20)]


@each_client
def test_any_client_writes_and_reads(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    client.send(ottla.bootstrap, topic, VALUES)
    assert client.read(ottla.bootstrap, topic, len(VALUES)) == VALUES
    assert [record.value for record in ottla.records(topic)] == VALUES
    assert ottla.requests.count("Produce", client_id=client.name) >= 1
    assert ottla.requests["Fetch"] >= 1


@each_client
def test_a_group_is_seen_to_catch_up(ottla: Ottla, client: Client) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *VALUES)
    assert client.read(ottla.bootstrap, topic, 20, group=f"g-{client.name}") == VALUES
    ottla.wait_for_lag(f"g-{client.name}", 0, topic=topic)
    ottla.produce(topic, "more")
    state = ottla.group(f"g-{client.name}")
    assert state.lag == 1
    assert list(state.positions.values()) == [20]
    assert ottla.group("no-such-group").state == "Dead"


def test_records_come_back_as_they_were_given(ottla: Ottla) -> None:
    topic = ottla.topic(partitions=3)
    places = ottla.produce(topic, "a", ("key", "b"), None, b"\xff", headers={"h": "1"}, timestamp=1_700_000_000_000)
    assert len({partition for partition, _ in places}) >= 2
    first = next(record for record in ottla.records(topic) if record.value == b"a")
    assert first == Record(topic, 0, 0, 1_700_000_000_000, None, b"a", [("h", b"1")])
    copy = ottla.topic()
    ottla.produce(copy, *ottla.records(topic))
    assert {(r.key, r.value) for r in ottla.consume(copy, 4)} == {
        (None, b"a"),
        (b"key", b"b"),
        (None, None),
        (None, b"\xff"),
    }


def test_consume_goes_on_where_it_was_and_tells_what_did_not_come(ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "1", '{"n": 2}', "3")
    assert [record.text for record in ottla.consume(topic, 1)] == ["1"]
    assert ottla.consume(topic, 1)[0].json == {"n": 2}
    with pytest.raises(NotInTime, match=r"2 records in .* there are 1"):
        ottla.consume(topic, 2, timeout_s=0.05)
    with pytest.raises(KafkaError, match="There is no topic"):
        ottla.produce("not-there", "x")


# A test checks the state that the previous test left: both must run in one process.
in_order = pytest.mark.xdist_group("fixture-in-order")

MADE: list[str] = []


@in_order
def test_what_a_test_makes(ottla: Ottla) -> None:
    MADE.append(ottla.topic("orders"))
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": ottla.bootstrap, "log_level": 2})
    producer.produce("made-by-a-client", b"x")
    assert producer.flush(10) == 0
    MADE.append("made-by-a-client")


@in_order
def test_topic_of_the_previous_test_is_deleted(ottla: Ottla) -> None:
    assert len(MADE) == 2
    for name in MADE:
        assert ottla.records(name) == []
    assert ottla.topic("orders", retention_ms=1000) == "orders"


VIEWS: list[Ottla] = []


@in_order
def test_view_is_kept_for_the_next_test(ottla: Ottla, ottla_broker) -> None:  # type: ignore[no-untyped-def]
    own = ottla_broker()
    for view in (ottla, own):
        view.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", may_miss=True)
    VIEWS.extend([ottla, own])


@in_order
def test_view_of_a_finished_test_refuses_to_act(ottla: Ottla) -> None:
    assert len(VIEWS) == 2
    for view in VIEWS:
        for act in (
            lambda view: view.bootstrap,
            lambda view: view.data,
            lambda view: view.topic("orders"),
            lambda view: view.produce("orders", "x"),
            lambda view: view.records("orders"),
            lambda view: view.consume("orders"),
            lambda view: view.group("shop"),
            lambda view: view.wait_for_lag("shop"),
            lambda view: view.restart(),
            lambda view: view.stop(),
            lambda view: view.kill(),
            lambda view: view.start(),
            lambda view: view.pause(),
            lambda view: view.resume(),
            lambda view: view.end(),
            lambda view: view.requests["Produce"],
            lambda view: view.clock.advance(1),
            lambda view: view.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER"),
            lambda view: view.faults.drop_connections(),
        ):
            with pytest.raises(BrokerError, match="The test 'test_view_is_kept_for_the_next_test' is over"):
                act(view)
        assert view.faults.injected[0].count == 0
        view.faults.injected[0].lift()
    ottla.topic("orders")


def test_a_broker_of_ones_own_has_its_own_settings(ottla_broker) -> None:  # type: ignore[no-untyped-def]
    small = ottla_broker({"message.max.bytes": 1000})
    large = ottla_broker()
    assert small.bootstrap != large.bootstrap
    for broker, fits in ((small, False), (large, True)):
        topic = broker.topic()
        if fits:
            broker.produce(topic, "x" * 2000)
        else:
            with pytest.raises(KafkaError, match=r"max\.message\.bytes is 1000"):
                broker.produce(topic, "x" * 2000)


@pytest.mark.parametrize("kind", [ThreadBroker, ProcessBroker])
@pytest.mark.parametrize("way", ["restart", "kill"])
def test_data_and_port_outlive(kind: type[ThreadBroker | ProcessBroker], way: str) -> None:
    broker = kind()
    try:
        broker.start()
        ottla = Ottla(broker)
        topic = ottla.topic()
        ottla.produce(topic, *VALUES)
        where = ottla.bootstrap
        fault = ottla.faults.fail("Metadata", "INVALID_TOPIC_EXCEPTION", may_miss=True)
        if way == "restart":
            ottla.restart()
        else:
            ottla.kill()
            with pytest.raises(BrokerError, match="does not run"):
                ottla.topic()
            assert fault.count == 0
            ottla.start()
        assert ottla.bootstrap == where
        assert [record.value for record in ottla.records(topic)] == VALUES
        assert fault.count == 0
        assert way in ottla.faults.report() or way == "restart"
    finally:
        broker.close()


@pytest.mark.parametrize("own_port", [False, True])
@pytest.mark.parametrize("kind", [ThreadBroker, ProcessBroker])
def test_port_of_a_killed_broker_is_given_to_no_other_process(
    kind: type[ThreadBroker | ProcessBroker], own_port: bool
) -> None:
    broker = kind()
    try:
        broker.start()
        ottla = Ottla(broker, own_port=own_port)
        port = int(ottla.bootstrap.rpartition(":")[2])
        ottla.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        ottla.start()
        ottla.produce(ottla.topic(), "x")
    finally:
        broker.close()


@pytest.mark.parametrize("kind", [ThreadBroker, ProcessBroker])
def test_threads_of_a_test_share_its_view(kind: type[ThreadBroker | ProcessBroker]) -> None:
    broker = kind()
    try:
        broker.start()
        ottla = Ottla(broker, own_port=True)
        topics = [ottla.topic() for _ in range(4)]
        gate = threading.Barrier(len(topics))

        def work(topic: str) -> tuple[str, set[bytes | None]]:
            gate.wait(10)
            bootstrap = ottla.bootstrap
            for _ in range(50):
                ottla.produce(topic, topic)
                ottla.requests.all()
            return bootstrap, {record.value for record in ottla.records(topic)}

        threads = deadlines.in_threads([partial(work, topic) for topic in topics], "client")
        found = deadlines.results(threads, "the clients of all threads")
        assert len({bootstrap for bootstrap, _ in found}) == 1
        assert [values for _, values in found] == [{topic.encode()} for topic in topics]
    finally:
        broker.close()


@pytest.mark.parametrize("kind", [ThreadBroker, ProcessBroker])
def test_paused_broker_does_not_respond_until_it_is_resumed(kind: type[ThreadBroker | ProcessBroker]) -> None:
    broker = kind()
    try:
        broker.start()
        ottla = Ottla(broker)
        topic = ottla.topic()
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": ottla.bootstrap, "log_level": 2})
        with ottla.faults.pause() as paused:
            producer.produce(topic, b"x")
            assert producer.flush(0.3) == 1
            with pytest.raises(BrokerError, match="paused"):
                ottla.records(topic)
            assert paused.count == 1
        assert producer.flush(10) == 0
        assert len(ottla.records(topic)) == 1
    finally:
        broker.close()


def test_nothing_is_left_of_a_broker() -> None:
    threads = set(threading.enumerate())
    files = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            broker = ThreadBroker()
            broker.start()
            ottla = Ottla(broker)
            ottla.produce(ottla.topic(), "x")
            broker.close()
            assert not os.path.exists(broker.data)
    assert {thread for thread in threading.enumerate() if "ottla" in thread.name} <= threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_a_start_that_fails_says_why() -> None:
    broker = ThreadBroker({"log.retention.ms": "soon"})
    try:
        with pytest.raises(BrokerError, match=r"log\.retention\.ms"):
            broker.start()
        assert not broker.running
    finally:
        broker.close()
    beside = ProcessBroker({"log.retention.ms": "soon"})
    try:
        with pytest.raises(BrokerError, match=r"log\.retention\.ms"):
            beside.start()
    finally:
        beside.close()


def test_records_of_any_age_stay_unless_their_topic_has_a_retention_time(ottla: Ottla) -> None:
    old, brief = ottla.topic(), ottla.topic(retention_ms=1000)
    for topic in (old, brief):
        ottla.produce(topic, "x", timestamp=1_000)
    ottla.clock.advance(minutes=10)  # to the next check of retention
    ottla.wait_until(lambda: not ottla.records(brief))
    assert len(ottla.records(old)) == 1


def test_the_clock_moves_for_retention_and_timestamps(ottla: Ottla) -> None:
    topic = ottla.topic(retention_ms=3_600_000)
    ottla.produce(topic, "old")
    ottla.clock.advance(minutes=59)
    assert len(ottla.records(topic)) == 1
    ottla.clock.advance(minutes=2)
    ottla.wait_until(lambda: not ottla.records(topic))
    ottla.produce(topic, "new")
    ahead_ms = ottla.records(topic)[0].timestamp - time.time() * 1000
    assert 60 * 60_000 < ahead_ms < 62 * 60_000
