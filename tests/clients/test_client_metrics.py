"""Clients push their metrics (KIP-714) to a broker with an endpoint: Ottla's, librdkafka's and Java's clients.

One broker with one subscription to all metrics serves all tests. Each test has its own client id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from ottla.clients import Admin, AsyncProducer, Consumer, Producer, ShareConsumer
from ottla.clients.admin import ConfigResource, ResourceType
from ottla.clients.errors import ClientError, UnsupportedByBroker
from ottla.common.ids import TopicPartition, uuid_from_text
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

from .metrics_receiver import Receiver
from .support import unique, wait_until

INTERVAL_MS = 200
TOPIC = "pushed"
ALL = ConfigResource(ResourceType.CLIENT_METRICS, "all")


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    process = ForkedOttla(tmp_path_factory.mktemp("receiver"), {"ottla.metrics.listener": "127.0.0.1:0"})
    process.start()
    try:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.create_topic(TOPIC)
            admin.alter_configs({ALL: {"metrics": "*", "interval.ms": str(INTERVAL_MS)}})
        yield Receiver(process)
        process.assert_no_traceback()
    finally:
        process.stop()


def test_producer_pushes_what_kip_714_requires(receiver: Receiver) -> None:
    client_id = unique("producer")
    with Producer(bootstrap_servers=receiver.bootstrap, client_id=client_id) as producer:
        producer.send(TOPIC, b"v").result(30)
        instance_id = producer.client_instance_id()
        assert len(uuid_from_text(instance_id)) == 16
        found = receiver.wait_for(
            client_id,
            "kafka_client_producer_connection_creation_total",
            "kafka_client_producer_connection_creation_rate",
            'kafka_client_producer_node_request_latency_avg{node_id="1"}',
            'kafka_client_producer_node_request_latency_max{node_id="1"}',
        )
        assert found["kafka_client_producer_connection_creation_total"] >= 1
        assert found["kafka_client_producer_record_send_total"] == 1
        assert f'client_instance_id="{instance_id}",client_software_name="ottla"' in receiver.scrape()
        producer.send(TOPIC, b"v").result(30)
    # `close` pushes a last time.
    name = "kafka_client_producer_record_acknowledged_total"
    wait_until(lambda: receiver.series(client_id)[name] == 2, "the last push")


def test_consumer_pushes_its_own_metrics(receiver: Receiver) -> None:
    client_id = unique("consumer")
    with Producer(bootstrap_servers=receiver.bootstrap) as producer:
        producer.send(TOPIC, b"v").result(30)
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": client_id, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign([(TOPIC, 0)])
        wait_until(lambda: bool(consumer.poll(0.1)), "a record")
        names = ("fetch_manager_records_consumed_total", "coordinator_assigned_partitions", "connection_creation_total")
        found = receiver.wait_for(client_id, *(f"kafka_client_consumer_{name}" for name in names))
        assert found["kafka_client_consumer_coordinator_assigned_partitions"] == 1
        assert consumer.client_instance_id() == consumer.client_instance_id()


def test_admin_client_and_share_consumer_push_the_metrics_of_their_connections(receiver: Receiver) -> None:
    admin_id, share_id = unique("admin"), unique("share")
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": share_id, "group.id": share_id}
    with (
        Admin(receiver.bootstrap, client_id=admin_id, enable_metrics_push=True) as admin,
        ShareConsumer(settings) as consumer,
    ):
        admin.describe_cluster()
        consumer.subscribe(TOPIC)
        consumer.poll(0.1)
        for start, client, client_id in (("admin_client", admin, admin_id), ("consumer", consumer, share_id)):
            names = ("connection_creation_rate", "node_request_latency_avg", "connection_creation_total")
            found = receiver.wait_for(client_id, *(f"kafka_client_{start}_{name}" for name in names))
            assert found[f"kafka_client_{start}_connection_creation_total"] >= 1
            assert f'client_instance_id="{client.client_instance_id()}"' in receiver.scrape()


def test_times_are_pushed_while_records_are_sent_read_and_committed(receiver: Receiver) -> None:
    sender, reader = unique("sender"), unique("reader")
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": reader, "group.id": reader}
    with Producer(bootstrap_servers=receiver.bootstrap, client_id=sender) as producer, Consumer(settings) as consumer:
        consumer.assign([(TOPIC, 0)])

        def has_pushed(client_id: str, *names: str) -> bool:
            producer.send(TOPIC, b"v").result(30)
            consumer.poll(0.01)
            consumer.commit({TopicPartition(TOPIC, 0): 0})
            ends = {f"kafka_client_{name}_{end}" for name in names for end in ("avg", "max")}
            return ends <= receiver.series(client_id).keys()

        names = ("producer_record_queue_time", "producer_produce_throttle_time")
        wait_until(lambda: has_pushed(sender, *names), "the times of the producer")
        names = ("consumer_fetch_manager_fetch_latency", "consumer_coordinator_commit_latency")
        wait_until(lambda: has_pushed(reader, *names), "the times of the consumer")


@contextmanager
def pushing_every(receiver: Receiver, interval_ms: int) -> Iterator[None]:
    with Admin(bootstrap_servers=receiver.bootstrap) as admin:
        admin.alter_configs({ALL: {"interval.ms": str(interval_ms)}})
        try:
            yield
        finally:
            admin.alter_configs({ALL: {"interval.ms": str(INTERVAL_MS)}})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_and_idle_polls_are_pushed(receiver: Receiver, protocol: str) -> None:
    client_id = unique("rebalanced")
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": client_id, "group.id": client_id}
    start = "kafka_client_consumer_"
    wanted = {f"{start}poll_idle_ratio_avg", *(f"{start}coordinator_rebalance_latency_{end}" for end in ("avg", "max"))}
    seen: dict[str, float] = {}
    # A push has the rebalances since the previous one. The endpoint shows the last push, and is read once a second.
    with pushing_every(receiver, 2_000), Consumer({**settings, "group.protocol": protocol}) as consumer:

        def has_seen() -> bool:
            consumer.poll(0.1)
            seen.update(receiver.series(client_id))
            return wanted <= seen.keys()

        consumer.subscribe([TOPIC])
        wait_until(has_seen, "the times of rebalances and polls")
    assert 0 < seen[f"{start}poll_idle_ratio_avg"] <= 1
    assert 0 < seen[f"{start}coordinator_rebalance_latency_max"] < 60_000


def test_admin_client_pushes_only_on_demand(receiver: Receiver) -> None:
    with Admin(receiver.bootstrap) as admin, pytest.raises(ClientError, match=r"enable\.metrics\.push is false"):
        admin.client_instance_id()


def test_asyncio_producer_has_a_client_instance_id(receiver: Receiver) -> None:
    async def run() -> str:
        async with AsyncProducer(bootstrap_servers=receiver.bootstrap) as producer:
            return await producer.client_instance_id()

    assert len(uuid_from_text(asyncio.run(run()))) == 16


def test_client_follows_a_change_of_its_subscription_and_a_restart(receiver: Receiver) -> None:
    """The state of a broker is in memory: after a restart the next push is accepted, or asks for the subscription."""
    client_id = unique("following")
    resource = ConfigResource(ResourceType.CLIENT_METRICS, client_id)
    with Producer(bootstrap_servers=receiver.bootstrap, client_id=client_id) as producer:
        producer.send(TOPIC, b"v").result(30)
        receiver.wait_for(client_id, "kafka_client_producer_record_send_total")
        with Admin(bootstrap_servers=receiver.bootstrap) as admin:
            admin.alter_configs({resource: {"metrics": "x", "interval.ms": "100", "match": f"client_id={client_id}"}})
            receiver.wait_for(client_id, "kafka_client_producer_record_send_total")
        receiver.process.kill()
        receiver.process.start()
        wait_until(lambda: producer.send(TOPIC, b"v").result(30) is not None, "a record after the restart")
        receiver.wait_for(client_id, "kafka_client_producer_record_send_total")
        with Admin(bootstrap_servers=receiver.bootstrap) as admin:
            admin.alter_configs({resource: {"metrics": None, "interval.ms": None, "match": None}})


def test_client_without_the_setting_has_no_id_and_pushes_nothing(receiver: Receiver) -> None:
    client_id = unique("silent")
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": client_id, "enable.metrics.push": False}
    with Producer(settings) as producer:
        producer.send(TOPIC, b"v").result(30)
        with pytest.raises(ClientError, match=r"enable\.metrics\.push is false"):
            producer.client_instance_id()
    assert not receiver.series(client_id)


def test_broker_without_an_endpoint_gives_no_client_instance_id(broker: RunningBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(UnsupportedByBroker):
        producer.client_instance_id()


def test_librdkafka_pushes(receiver: Receiver) -> None:
    client_id = unique("librdkafka")
    settings = {"bootstrap.servers": receiver.bootstrap, "client.id": client_id, "enable.metrics.push": True}
    producer = confluent_kafka.Producer(settings)
    producer.produce(TOPIC, b"v")
    assert producer.flush(30) == 0
    group = {"group.id": client_id, "client.id": f"{client_id}-c", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **group})
    consumer.subscribe([TOPIC])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None, "a record")
        found = receiver.wait_for(client_id, "kafka_client_producer_connection_creation_total")
        assert found["kafka_client_producer_connection_creation_total"] >= 1
        receiver.wait_for(f"{client_id}-c", "kafka_client_consumer_connection_creation_total")
    finally:
        consumer.close()
    assert "librdkafka" in receiver.scrape()


@pytest.mark.jvm
def test_java_pushes(receiver: Receiver) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    client_id = unique("java")
    words = ("--topic", TOPIC, "--num-records", 60, "--record-size", 10, "--throughput", 20)
    cluster = ("--bootstrap-server", receiver.bootstrap, "--command-property", f"client.id={client_id}")
    done = kafka.tool("producer-perf-test", *words, *cluster)
    assert done.returncode == 0, done.stdout + done.stderr
    found = receiver.series(client_id)
    assert found["kafka_client_producer_connection_creation_total"] >= 1
    assert any(name.startswith("kafka_client_producer_node_request_latency_avg") for name in found)
    assert 'client_software_name="apache-kafka-java"' in receiver.scrape()
