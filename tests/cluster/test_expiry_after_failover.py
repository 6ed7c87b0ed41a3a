"""Expiry at a coordinator that took over: of transactions, and of members that stopped while another node led.

The nodes are shared by the tests of this file. Each test kills a coordinator and starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Consumer, Producer, ShareConsumer, TopicPartition
from ottla.clients.admin import ConfigResource, NewTopic, TransactionState
from ottla.clients.errors import ClientError
from ottla.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordination.internal_topic import partition_of
from tests import deadlines

from .processes import SMALL, Cluster

pytestmark = [pytest.mark.xdist_group("expiry-after-failover"), pytest.mark.timeout(180)]

PARTITIONS, RECORDS = 4, 40
WAIT_S = 40.0
EXPIRY_MS = 4_000
SHORT = {
    f"group.{kind}.{prefix}{name}": EXPIRY_MS if name == "session.timeout.ms" else 500
    for kind in ("consumer", "share")
    for name in ("session.timeout.ms", "heartbeat.interval.ms")
    for prefix in ("min.", "")
}
LOCKS = {"group.share.min.record.lock.duration.ms": EXPIRY_MS, "group.share.record.lock.duration.ms": EXPIRY_MS}
MEMBER = """
import sys, time
from ottla.clients import Consumer, ShareConsumer
kind, bootstrap, group, topic = sys.argv[1:]
how = dict(bootstrap_servers=bootstrap, group_id=group)
if kind == "Consumer":
    member = Consumer(**how, group_protocol="consumer", auto_offset_reset="earliest")
else:
    member = ShareConsumer(**how)
member.subscribe([topic])
while not list(member.poll(0.2)):
    pass
print("has records", flush=True)
while True:
    if kind == "Consumer":
        member.poll(0.2)  # gives up partitions for the next member
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {**SHORT, **LOCKS, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Cluster(tmp_path_factory.mktemp("expiry"), properties=settings) as cluster:
        yield cluster
        cluster.assert_no_traceback()


@contextlib.contextmanager
def member_process(cluster: Cluster, kind: str, group: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which has fetched records."""
    command = [sys.executable, "-c", MEMBER, kind, cluster.bootstrap, group, topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "has records\n"
        yield process
    finally:
        deadlines.kill(process)


def create(cluster: Cluster, topic: str) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush(WAIT_S)


@contextlib.contextmanager
def killed_coordinator(cluster: Cluster, topic: str, key: str) -> Iterator[None]:
    """Kill the coordinator; it is started again at the end."""
    node_id = cluster.leader(topic, partition_of(key, SMALL["offsets.topic.num.partitions"]))
    cluster.kill(node_id)
    try:
        yield
    finally:
        cluster.start_node(node_id)
        with cluster.admin() as admin:
            cluster.wait_until(lambda: all(len(each.isr) == 3 for each in admin.describe_topic(topic).partitions))


def test_transaction_expires_at_the_next_coordinator(cluster: Cluster) -> None:
    create(cluster, "transactional")
    producer = Producer(
        bootstrap_servers=cluster.bootstrap, acks="all", transactional_id="app", transaction_timeout_ms=EXPIRY_MS
    )
    producer.init_transactions()
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.send("transactional", b"aborted", partition=index)
    producer.flush(WAIT_S)
    began_s = time.monotonic()
    with killed_coordinator(cluster, TRANSACTIONS_TOPIC, "app"), cluster.admin() as admin:
        aborted = TransactionState.COMPLETE_ABORT
        cluster.wait_until(lambda: admin.describe_transactions(["app"])["app"].state is aborted, WAIT_S)
        assert time.monotonic() - began_s > EXPIRY_MS / 1000 - 1.0
        with pytest.raises(ClientError):
            producer.commit_transaction()
        with contextlib.suppress(ClientError):
            producer.close()
        with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            partitions = [TopicPartition("transactional", index) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            with Producer(bootstrap_servers=cluster.bootstrap) as other:
                for partition in partitions:
                    other.send(partition.topic, b"last", partition=partition.partition).result(WAIT_S)
            values: list[bytes | None] = []
            deadline = time.monotonic() + WAIT_S
            while values.count(b"last") < PARTITIONS and time.monotonic() < deadline:
                values += [record.value for record in consumer.poll(0.2)]
    assert len(values) == RECORDS + PARTITIONS
    assert b"aborted" not in values


def test_member_that_stops_expires_at_the_next_group_coordinator(cluster: Cluster) -> None:
    create(cluster, "consumed")
    lost: list[TopicPartition] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="g", group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        with member_process(cluster, "Consumer", "g", "consumed") as other:
            consumer.subscribe("consumed", on_lost=lost.extend)

            def has(count: int) -> bool:
                consumer.poll(0.2)
                return len(consumer.assignment()) == count

            cluster.wait_until(lambda: has(PARTITIONS // 2), WAIT_S)
            os.kill(other.pid, signal.SIGSTOP)
            with killed_coordinator(cluster, OFFSETS_TOPIC, "g"):
                cluster.wait_until(lambda: has(PARTITIONS), WAIT_S)
                with cluster.admin() as admin:
                    assert len(admin.describe_group("g").members) == 1
        assert not lost, "the member that went on lost its partitions"


def test_records_of_a_share_member_that_stops_are_delivered_again(cluster: Cluster) -> None:
    """The leaders of the partitions, which have its records, are not told by the coordinator of the group."""
    create(cluster, "shared")
    with cluster.admin() as admin:
        admin.alter_config(ConfigResource.group("s"), {"share.auto.offset.reset": "earliest"})
    with (
        member_process(cluster, "ShareConsumer", "s", "shared") as other,
        ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id="s") as consumer,
    ):
        consumer.subscribe(["shared"])
        os.kill(other.pid, signal.SIGSTOP)
        seen: dict[int, int] = {}
        with killed_coordinator(cluster, OFFSETS_TOPIC, "s"):
            deadline = time.monotonic() + WAIT_S
            while len(seen) < RECORDS and time.monotonic() < deadline:
                for record in consumer.poll(0.2):
                    seen[int(record.value or b"")] = consumer.delivery_count(record)
            assert sorted(seen) == list(range(RECORDS))
            assert max(seen.values()) > 1, "the process that stopped had no records"
            with cluster.admin() as admin:
                cluster.wait_until(lambda: len(admin.describe_group("s").members) == 1, WAIT_S)
