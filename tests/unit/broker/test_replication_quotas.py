"""Throttled replicas wait for their quota, unless they are in sync. KIP-73."""

from __future__ import annotations

from pathlib import Path

from ottla.common.ids import TopicPartition
from ottla.partitions.replication.fetcher import _throttled_ms
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.metadata_records import PartitionChangeRecord

from .harness import BrokerHarness, open_harness
from .test_several_brokers import apply, broker_image, cluster

__all__ = ["cluster"]
TOPIC, BROKER, SET, DELETE = 2, 4, 0, 1
BATCH = 40_000


def configure(harness: BrokerHarness, kind: int, name: str, value: str | None) -> None:
    resource_name = "throttled" if kind == TOPIC else ""
    setting = AlterableConfig(name, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(kind, resource_name, [setting])])
    assert not harness.ask(request).responses[0].error_code


def replicate(harness: BrokerHarness, offset: int) -> int:
    """Fetch as broker 2, without waiting; returns the bytes of the answer."""
    topic_id = harness.broker.metadata.image.topics_by_name["throttled"].topic_id
    assert topic_id is not None
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=BATCH)
    request = FetchRequest(
        replica_state=ReplicaState(2, broker_image(harness, 2).epoch),
        max_bytes=1 << 20,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
    (topic,) = harness.ask(request).responses
    return len(bytes(topic.partitions[0].records or b""))


def led_for_broker_2(harness: BrokerHarness, *, in_sync: bool) -> None:
    topic = CreatableTopic("throttled", -1, -1, [CreatableReplicaAssignment(0, [1, 2])])
    assert not harness.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    topic_id = harness.broker.metadata.image.topics_by_name["throttled"].topic_id
    assert topic_id is not None
    if not in_sync:
        apply(harness, PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]))
    for _ in range(6):
        harness.append("throttled", b"." * (BATCH - 200))
    configure(harness, BROKER, "leader.replication.throttled.rate", str(BATCH // 2))


def test_follower_that_is_not_in_sync_waits_for_the_quota_of_the_leader(cluster: BrokerHarness) -> None:
    led_for_broker_2(cluster, in_sync=False)
    assert replicate(cluster, 0) > 0
    assert replicate(cluster, 1) > 0, "the topic is not throttled yet"
    configure(cluster, TOPIC, "leader.replication.throttled.replicas", "0:1")
    assert replicate(cluster, 2) > 0
    assert replicate(cluster, 3) == 0
    cluster.loop.advance(2_000)
    assert replicate(cluster, 3) > 0
    assert replicate(cluster, 4) == 0
    configure(cluster, TOPIC, "leader.replication.throttled.replicas", "0:2,1:1")
    assert replicate(cluster, 4) > 0, "another replica is throttled"
    configure(cluster, TOPIC, "leader.replication.throttled.replicas", "*")
    assert replicate(cluster, 5) == 0
    configure(cluster, BROKER, "leader.replication.throttled.rate", None)
    assert replicate(cluster, 5) > 0


def test_follower_in_sync_does_not_wait(cluster: BrokerHarness) -> None:
    led_for_broker_2(cluster, in_sync=True)
    configure(cluster, TOPIC, "leader.replication.throttled.replicas", "*")
    assert all(replicate(cluster, offset) > 0 for offset in range(6))


def test_throttled_follower_fetches_later_unless_it_has_everything(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        harness.create("throttled")
        harness.append("throttled", b"x")
        log = harness.partition("throttled").log
        quota = harness.broker.replication_quotas.follower
        behind = PartitionData(0, high_watermark=5, records=b"." * BATCH)
        equal = PartitionData(0, high_watermark=1, records=b"." * BATCH)
        configure(harness, BROKER, "follower.replication.throttled.rate", str(BATCH // 4))
        assert _throttled_ms(quota, log, behind) == 0
        configure(harness, TOPIC, "follower.replication.throttled.replicas", "0:1")
        assert harness.broker.replication_quotas.follower.is_throttled(TopicPartition("throttled", 0))
        assert _throttled_ms(quota, log, equal) == 0
        assert _throttled_ms(quota, log, equal) == 0
        assert _throttled_ms(quota, log, behind) == 1000
        configure(harness, TOPIC, "follower.replication.throttled.replicas", None)
        assert _throttled_ms(quota, log, behind) == 0
