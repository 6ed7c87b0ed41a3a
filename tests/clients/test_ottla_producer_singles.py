"""Programs that wait for each record before they send the next one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from ottla.clients import Producer
from ottla.clients.errors import RequestTimedOut
from tests import deadlines
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import WAIT_S
from .test_ottla_producer import read_back

SINGLES = 20


def send_singles(producer: Producer, topic: str, count: int = SINGLES) -> list[int]:
    return [producer.send(topic, b"%d" % i).result(WAIT_S).offset for i in range(count)]


@pytest.mark.both
@pytest.mark.parametrize("acks", [1, "all"])
def test_waited_records_are_written_once_in_order_over_one_connection(
    broker: RunningBroker, make_topic: MakeTopic, acks: object
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        assert send_singles(producer, topic, 100) == list(range(100))
        assert producer.metrics()["connection-creation-total"] == 1, "waiting needs no connection of its own"
    rows = read_back(broker.bootstrap, topic, 1, 100)[0]
    assert [record.value for _, record in rows] == [b"%d" % i for i in range(100)]


@pytest.mark.both
def test_record_without_waiter_after_waited_records_is_sent_after_its_linger(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=50) as producer:
        for _ in range(3):
            send_singles(producer, topic)
            done = threading.Event()
            producer.send(topic, b"no waiter", callback=lambda _, done=done: done.set())  # type: ignore[misc]
            start = time.monotonic()
            assert done.wait(WAIT_S)
            assert time.monotonic() - start < 5


@pytest.mark.both
def test_waited_records_between_others_keep_the_order(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        send_singles(producer, topic, 10)
        values = []
        for i in range(300):
            values.append(b"%d" % i)
            delivery = producer.send(topic, values[-1])
            if i % 7 in (2, 3):
                delivery.result(WAIT_S)
        assert producer.flush(WAIT_S) == 0
    rows = read_back(broker.bootstrap, topic, 1, 310)[0]
    assert [record.value for _, record in rows][10:] == values


@pytest.mark.both
def test_threads_that_wait_can_share_a_producer(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        send_singles(producer, topic, 5)
        threads = [threading.Thread(target=send_singles, args=(producer, topic, 100)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    found = read_back(broker.bootstrap, topic, 2, 405)
    assert sum(len(rows) for rows in found.values()) == 405


def test_waited_record_is_written_once_if_its_broker_is_suspended(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as broker, Producer(bootstrap_servers=broker.bootstrap, acks=1) as producer:
        send_singles(producer, "t")
        os.kill(broker.pid, signal.SIGSTOP)
        go_on = threading.Timer(0.8, os.kill, (broker.pid, signal.SIGCONT))
        go_on.start()
        with pytest.raises(RequestTimedOut):
            producer.send("t", b"slow").result(0.4)
        assert producer.send("t", b"behind it").result(WAIT_S).offset == SINGLES + 1
        deadlines.join(go_on, "SIGCONT of the broker")
        assert send_singles(producer, "t") == list(range(SINGLES + 2, 2 * SINGLES + 2))
        rows = read_back(broker.bootstrap, "t", 1, 2 * SINGLES + 2)[0]
        assert [record.value for _, record in rows][SINGLES : SINGLES + 2] == [b"slow", b"behind it"]


def test_producer_reconnects_to_a_broker_killed_between_waited_records(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
        assert send_singles(producer, "t") == list(range(SINGLES))
        broker.kill()
        restart = threading.Timer(0.2, broker.start)
        restart.start()
        assert send_singles(producer, "t") == list(range(SINGLES, 2 * SINGLES))
        deadlines.join(restart, "the start of the broker")
        assert len(read_back(broker.bootstrap, "t", 1, 2 * SINGLES)[0]) == 2 * SINGLES
