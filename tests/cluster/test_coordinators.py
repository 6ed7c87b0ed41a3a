"""Groups, transactions and share groups on three nodes, whose coordinators are killed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from ottla.clients import Admin, Consumer, Producer, Record, ShareConsumer, TopicPartition
from ottla.clients.admin import ConfigResource, NewTopic, PartialFailure
from ottla.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordination.internal_topic import partition_of

from .conftest import Clusters
from .processes import SMALL, Cluster

TOPIC, PARTITIONS = "t", 6
WAIT_S = 40.0
COORDINATOR_PARTITIONS = SMALL["offsets.topic.num.partitions"]


@pytest.fixture
def cluster(clusters: Clusters) -> Iterator[Cluster]:
    cluster = clusters()
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    yield cluster
    cluster.assert_no_traceback()


def kill_coordinator(cluster: Cluster, topic: str, key: str) -> int:
    node_id = cluster.leader(topic, partition_of(key, COORDINATOR_PARTITIONS))
    cluster.kill(node_id)
    return node_id


def start_again(cluster: Cluster, node_id: int, *topics: str) -> None:
    """Start a node, and wait until its replicas of these topics are in sync, so that another node may be killed."""
    cluster.start_node(node_id)

    def in_sync() -> bool:
        with cluster.admin() as admin:
            found = admin.describe_topics(topics)
        return all(len(partition.isr) == 3 for topic in found.values() for partition in topic.partitions)

    cluster.wait_until(in_sync)


def produce(cluster: Cluster, values: range) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        sent = [producer.send(TOPIC, b"%d" % value, partition=value % PARTITIONS) for value in values]
        for each in sent:
            each.result(WAIT_S)


def read(consumer: Consumer, records: list[Record], count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.5)


def test_groups_continue_when_their_coordinators_are_killed(cluster: Cluster) -> None:
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    produce(cluster, range(60))
    total = 60
    for protocol in ("classic", "consumer"):
        group = f"group-{protocol}"
        lost: list[TopicPartition] = []
        records: list[Record] = []
        with Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(TOPIC, on_lost=lost.extend)
            read(consumer, records, total)
            consumer.commit()
            killed = kill_coordinator(cluster, OFFSETS_TOPIC, group)
            assert sum(row.offset for row in consumer.committed(partitions).values() if row) == total
            produce(cluster, range(total, total + 60))
            total += 60
            read(consumer, records, total)
            consumer.commit()
            assert sum(row.offset for row in consumer.committed(partitions).values() if row) == total
            assert not lost, "the group lost its member with the coordinator"
        assert sorted(int(record.value or b"") for record in records) == list(range(total)), "lost or duplicated"
        start_again(cluster, killed, TOPIC, OFFSETS_TOPIC)


def test_transactions_end_everywhere_although_their_coordinators_are_killed(cluster: Cluster) -> None:
    committed: set[bytes] = set()
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", transactional_id="app") as producer:
        producer.init_transactions()
        for number in range(12):
            values = [b"%d-%d" % (number, index) for index in range(PARTITIONS)]
            aborts = number % 4 == 2
            producer.begin_transaction()
            for index, value in enumerate(values):
                producer.send(TOPIC, value, partition=index)
            killed = kill_coordinator(cluster, TRANSACTIONS_TOPIC, "app") if number in (4, 6) else None
            if aborts:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.update(values)
            if killed is not None:
                start_again(cluster, killed, TOPIC, TRANSACTIONS_TOPIC)
    with Consumer(
        bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        records: list[Record] = []
        read(consumer, records, len(committed))
        records += consumer.poll(0.5)
    assert sorted(record.value or b"" for record in records) == sorted(committed)


def move_leaders(cluster: Cluster, first: int) -> None:
    """Make another node the preferred leader of each partition, and elect it while all nodes live."""
    counts = {TOPIC: PARTITIONS, OFFSETS_TOPIC: COORDINATOR_PARTITIONS, TRANSACTIONS_TOPIC: COORDINATOR_PARTITIONS}
    partitions = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
    with cluster.admin() as admin:
        admin.alter_partition_reassignments(
            {tp: [(tp.partition + first + position) % 3 + 1 for position in range(3)] for tp in partitions}
        )
        cluster.wait_until(lambda: not admin.list_partition_reassignments())
        admin.elect_leaders(partitions)

        def lead() -> bool:
            found = admin.describe_topics(counts)
            return all(row.leader == row.replicas[0] for topic in found.values() for row in topic.partitions)

        cluster.wait_until(lead)  # a repeated ElectLeaders elects no leader


def test_coordinators_move_between_live_nodes_during_transactions(cluster: Cluster) -> None:
    records: list[Record] = []
    lost: list[TopicPartition] = []
    with (
        Producer(bootstrap_servers=cluster.bootstrap, acks="all", transactional_id="app") as producer,
        Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            group_protocol="consumer",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(TOPIC, on_lost=lost.extend)
        consumer.poll(0.1)
        for number in range(4):
            producer.begin_transaction()
            for index in range(PARTITIONS):
                producer.send(TOPIC, b"%d-%d" % (number, index), partition=index)
            if number:
                producer.flush()
                move_leaders(cluster, number)
            producer.commit_transaction()
            read(consumer, records, PARTITIONS * (number + 1))
            consumer.commit()
        committed = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
    # Four records and four markers; the last marker may not have been fetched yet.
    assert {row.offset for row in committed.values() if row} <= {7, 8}
    expected = [b"%d-%d" % (number, index) for number in range(4) for index in range(PARTITIONS)]
    assert sorted(record.value or b"" for record in records) == sorted(expected)
    assert not lost


def test_share_group_continues_when_its_share_coordinators_are_killed(cluster: Cluster) -> None:
    produce(cluster, range(60))
    with (
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
        ShareConsumer(bootstrap_servers=cluster.bootstrap, group_id="shared") as consumer,
    ):
        admin.alter_config(ConfigResource.group("shared"), {"share.auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        consume_shared(admin, consumer, range(60))
        cluster.kill(cluster.leader(SHARE_STATE_TOPIC))
        produce(cluster, range(60, 120))
        # Records that the killed leader had delivered are delivered again if their acknowledgement was lost.
        consume_shared(admin, consumer, range(60, 120))


def consume_shared(admin: Admin, consumer: ShareConsumer, values: range) -> None:
    """Poll until all these values were delivered, and everything is acknowledged."""
    seen: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        seen.update(int(record.value or b"") for record in consumer.poll(0.5))
        with contextlib.suppress(PartialFailure):  # while share coordinators move
            offsets = admin.list_share_group_offsets("shared")
            if seen.issuperset(values) and [row.lag for row in offsets.values()] == [0] * PARTITIONS:
                return
    raise AssertionError(f"{len(seen)} of {len(values)} values; {offsets}")
