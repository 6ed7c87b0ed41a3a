"""`ottla group why`: each cause is constructed with real clients, most of them third-party, and must be named."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.clients import AcknowledgeType, Admin, Producer, ShareConsumer, TopicPartition
from ottla.clients.admin import ConfigResource
from tests import deadlines
from tests.clients.support import WAIT_S, unique, wait_until
from tests.conftest import RunningBroker
from tests.open_transactions import hang, open_transaction

from .conftest import Run

# A member that crashes at each record that it cannot process, and is started again by its supervisor.
FAILING = """
import sys, time, confluent_kafka
consumer = confluent_kafka.Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "client.id": "frail",
    "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000})
consumer.subscribe([sys.argv[3]])
while True:
    message = consumer.poll(1.0)
    if message is not None and message.error() is None:
        if message.value() == b"poison":
            time.sleep(0.5)
            consumer.close()
            sys.exit(1)
        consumer.commit(message, asynchronous=False)
"""


@pytest.fixture
def single(ours: Admin) -> Iterator[str]:
    """A topic with one partition."""
    name = unique("why")
    ours.create_topic(name, partitions=1, replication_factor=1)
    yield name
    ours.delete_topic(name)


def send(broker: RunningBroker, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", partition=0)


def confluent(broker: RunningBroker, group: str, **settings: Any) -> confluent_kafka.Consumer:
    shared = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_kafka.Consumer({**shared, "enable.auto.commit": False, "client.id": "reader", **given})


def read_one(consumer: confluent_kafka.Consumer) -> confluent_kafka.Message:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            return message
    raise AssertionError("no record was read")


def explained(ottla: Run, group: str, *words: str, watch: float = 2) -> dict[str, Any]:
    done = ottla("group", "why", group, "--json", "--watch", str(watch), *words)
    assert done.code == 0, done.err
    (report,) = done.objects
    return report


def codes(report: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in report["findings"]]


@contextmanager
def repeating(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` again and again in a thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            step()

    running = deadlines.in_threads([run], "repeated step")
    try:
        yield
    finally:
        stop.set()
        deadlines.results(running, "the repeated step")


@pytest.mark.both
def test_empty_group_with_lag_has_no_member(ottla: Run, broker: RunningBroker, ours: Admin, single: str) -> None:
    send(broker, single, b"first", b"second")
    group = unique("group")
    ours.alter_group_offsets(group, {TopicPartition(single, 0): 1})
    report = explained(ottla, group, watch=0.2)
    assert (codes(report), report["severity"], report["state"]) == (["no_member"], "critical", "Empty")
    (row,) = report["partitions"]
    assert (row["position"], row["lag"], row["record"]["offset"], row["record"]["value"]) == (1, 1, 1, "second")
    assert 0 <= row["lag_s"] < 600
    masked = explained(ottla, group, "--no-records", watch=0.2)["partitions"][0]["record"]
    assert (masked["key"], masked["value"], masked["size"]) == (None, None, len(b"k" + b"second"))
    ours.alter_group_offsets(group, {TopicPartition(single, 0): 2})
    assert codes(explained(ottla, group, watch=0.2)) == ["group_empty"]
    shown = ottla("group", "why", group, "--watch", "0")
    assert "no records to read" in shown.out


@pytest.mark.both
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_that_does_not_poll_is_named(
    ottla: Run, broker: RunningBroker, ours: Admin, single: str, protocol: str
) -> None:
    send(broker, single, b"a", b"b", b"c")
    group = unique("group")
    consumer = confluent(broker, group, group_protocol=protocol)
    try:
        consumer.subscribe([single])
        consumer.commit(message=read_one(consumer), asynchronous=False)
        # Heartbeats come from librdkafka's own thread.
        report = explained(ottla, group, watch=6)
    finally:
        consumer.close()
        ours.delete_group(group)
    assert codes(report) == ["not_polling"]
    (row,) = report["partitions"]
    assert (row["client"], row["position"], row["record"]["value"], row["code"]) == ("reader", 1, "b", "not_polling")
    assert row["unmoved_s"] >= 6
    assert "heartbeats" in report["findings"][0]["cause"]


@pytest.mark.both
def test_slow_member_differs_from_a_stuck_one(ottla: Run, broker: RunningBroker, ours: Admin, single: str) -> None:
    group = unique("group")
    send(broker, single, *[b"x"] * 10)
    consumer = confluent(broker, group)

    def read_slowly() -> None:
        consumer.commit(message=read_one(consumer), asynchronous=False)
        send(broker, single, *[b"x"] * 20)
        time.sleep(0.1)

    consumer.subscribe([single])
    try:
        consumer.commit(message=read_one(consumer), asynchronous=False)
        with repeating(read_slowly):
            report = explained(ottla, group, watch=2)
    finally:
        consumer.close()
        ours.delete_group(group)
    (row,) = report["partitions"]
    assert (codes(report), row["code"]) == (["slower_than_input"], "slower_than_input")
    assert row["written_per_s"] > row["read_per_s"] > 0


@pytest.mark.both
def test_record_that_members_fail_at_is_named(
    ottla: Run, broker: RunningBroker, ours: Admin, single: str, tmp_path: Path
) -> None:
    send(broker, single, b"good", b"poison", b"good")
    group, script = unique("group"), tmp_path / "member.py"
    script.write_text(FAILING)
    words = [sys.executable, str(script), broker.bootstrap, group, single]

    def supervise() -> None:
        subprocess.run(words, timeout=60, check=False, stderr=subprocess.DEVNULL)

    with repeating(supervise):
        wait_until(lambda: _position(ours, group, single) == 1, "the poison record is next")
        report = explained(ottla, group, watch=8)
    ours.delete_group(group)
    assert "poison_record" in codes(report), report
    (row,) = report["partitions"]
    assert (row["position"], row["record"]["value"], row["code"]) == (1, "poison", "poison_record")
    finding = next(each for each in report["findings"] if each["code"] == "poison_record")
    assert f"{single}/0@1" in finding["next_step"]
    assert "frail" in finding["cause"]


def _position(ours: Admin, group: str, topic: str) -> int | None:
    if group not in {each.group_id for each in ours.list_groups()}:
        return None
    at = ours.list_group_offsets(group).get(TopicPartition(topic, 0))
    return None if at is None else at.offset


@pytest.mark.both
def test_members_that_come_and_go_are_named(ottla: Run, broker: RunningBroker, ours: Admin, topic: str) -> None:
    group = unique("group")
    # With the classic protocol, librdkafka's close waits seconds for a join in flight.
    steady = confluent(broker, group, client_id="steady", group_protocol="consumer")

    def come_and_go() -> None:
        guest = confluent(broker, group, client_id="guest", group_protocol="consumer")
        guest.subscribe([topic])
        for _ in range(15):
            guest.poll(0.1)
            steady.poll(0.1)
        guest.close()

    steady.subscribe([topic])
    try:
        steady.commit(message=read_one(steady), asynchronous=False)
        with repeating(come_and_go):
            report = explained(ottla, group, watch=8)
    finally:
        steady.close()
    found = next(each for each in report["findings"] if each["code"] == "rebalance_loop" and each["subject"] == group)
    assert "guest" in found["cause"]
    assert "steady" not in found["cause"]
    assert "epoch grew" in found["cause"]


@pytest.mark.both
def test_open_transaction_is_named_with_its_producer(
    ottla: Run, broker: RunningBroker, ours: Admin, single: str
) -> None:
    send(broker, single, b"before")
    group, transactional_id = unique("group"), unique("tx")
    ours.alter_group_offsets(group, {TopicPartition(single, 0): 1})
    with open_transaction(broker.bootstrap, transactional_id, single) as producer:
        report = explained(ottla, group, watch=0.2)
        producer.abort_transaction()
    assert codes(report) == ["open_transaction"]
    assert transactional_id in report["findings"][0]["cause"]
    assert f"ottla txn abort --transactional-id {transactional_id}" in report["findings"][0]["next_step"]
    (row,) = report["partitions"]
    assert (row["stable_end"], row["end"]) == (1, 2)


@pytest.mark.both
def test_hanging_transaction_differs_from_an_open_one(
    ottla: Run, broker: RunningBroker, ours: Admin, single: str
) -> None:
    group = unique("group")
    ours.alter_group_offsets(group, {TopicPartition(single, 0): 0})
    hang(broker.bootstrap, single)
    report = explained(ottla, group, watch=0.2)
    assert codes(report) == ["hanging_transaction"]
    command = report["findings"][0]["next_step"].partition(" (")[0]
    assert ottla(*command.split()[1:], "--yes").code == 0
    assert codes(explained(ottla, group, watch=0.2)) != ["hanging_transaction"]


@pytest.mark.both
def test_position_before_the_log_and_after_its_end(ottla: Run, broker: RunningBroker, ours: Admin, single: str) -> None:
    send(broker, single, b"a", b"b", b"c")
    behind, beyond = unique("group"), unique("group")
    ours.alter_group_offsets(behind, {TopicPartition(single, 0): 1})
    ours.alter_group_offsets(beyond, {TopicPartition(single, 0): 9})
    ours.delete_records({TopicPartition(single, 0): 2})
    report = explained(ottla, behind, watch=0.2)
    assert codes(report) == ["behind_retention"]
    command = report["findings"][0]["next_step"].partition("choose: ")[2]
    assert ottla(*command.split()[1:]).code == 0
    assert codes(explained(ottla, behind, watch=0.2)) == ["no_member"]
    assert codes(explained(ottla, beyond, watch=0.2)) == ["beyond_the_end"]


@pytest.mark.both
def test_static_members_that_fence_each_other_are_named(
    ottla: Run, broker: RunningBroker, ours: Admin, single: str
) -> None:
    group = unique("group")

    def take_over() -> None:
        with ExitStack() as stack:
            member = confluent(broker, group, group_instance_id="same")
            stack.callback(member.close)
            member.subscribe([single])
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:
                member.poll(0.1)

    with repeating(take_over):
        wait_until(lambda: group in {each.group_id for each in ours.list_groups()}, "the group exists")
        report = explained(ottla, group, watch=8)
    assert "fenced" in codes(report), report
    assert "group.instance.id same" in next(e for e in report["findings"] if e["code"] == "fenced")["cause"]


@pytest.mark.both
def test_share_group_without_acknowledgements(ottla: Run, broker: RunningBroker, ours: Admin, single: str) -> None:
    send(broker, single, b"a", b"b")
    group = unique("sharing")
    ours.alter_config(ConfigResource.group(group), {"share.auto.offset.reset": "earliest"})
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "sharer"}
    with ShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(single)
        deadline = time.monotonic() + WAIT_S
        while not (records := consumer.poll(0.2)):
            assert time.monotonic() < deadline
        assert codes(explained(ottla, group, watch=0)) == ["nothing_committed"]
        for record in records:
            is_first = record.offset == 0
            consumer.acknowledge(record, AcknowledgeType.RENEW if is_first else AcknowledgeType.ACCEPT)
        consumer.commit_sync()
        report = explained(ottla, group, watch=1)
    assert (report["type"], codes(report)) == ("share", ["not_acknowledged"])
    assert report["partitions"][0]["lag"] == 1


def test_watch_must_be_a_time(plain: Run) -> None:
    done = plain("group", "why", "g", "--watch", "-1")
    assert (done.code, "--watch is -1" in done.err) == (2, True)
