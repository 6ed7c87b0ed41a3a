"""Throttled clients: transactions, groups, share groups, librdkafka, authenticated users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import confluent_kafka
import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import QuotaEntity
from tests.conftest import RunningBroker
from tests.peers.secured import SecuredKafka

from .conftest import MakeTopic
from .secured import sasl
from .secured_ottla import SecuredOttla
from .support import WAIT_S, unique, wait_until
from .test_ottla_consumer import poll_all
from .test_ottla_share_consumer import group as share_group
from .test_ottla_share_consumer import poll_some, share

__all__ = ["share_group"]


@contextmanager
def limited(admin: Admin, entity: QuotaEntity, **quotas: float) -> Iterator[None]:
    """Set quotas, and remove them at the end."""
    admin.alter_client_quotas({entity: quotas})
    wait_until(lambda: admin.describe_client_quotas(entity, strict=True) == {entity: quotas}, "the quotas")
    try:
        yield
    finally:
        admin.alter_client_quotas({entity: dict.fromkeys(quotas)})


@pytest.fixture
def ours(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


@pytest.mark.both
def test_librdkafka_reports_the_pauses_and_delivers_everything(
    broker: RunningBroker, ours: Admin, make_topic: MakeTopic
) -> None:
    topic, client = make_topic(), unique("rdkafka")
    pauses: list[float] = []
    stats: list[dict[str, Any]] = []
    with limited(ours, QuotaEntity(client_id=client), producer_byte_rate=20_000):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": client,
                "linger.ms": 0,
                "batch.size": 10_000,
                "throttle_cb": lambda event: pauses.append(event.throttle_time),
                "stats_cb": lambda text: stats.append(json.loads(text)),
                "statistics.interval.ms": 200,
            }
        )
        for _ in range(24):
            producer.produce(topic, bytes(9_000))
        assert producer.flush(WAIT_S) == 0
    assert max(pauses) > 0
    assert any(node["throttle"]["max"] > 0 for each in stats for node in each["brokers"].values())


@pytest.mark.both
def test_throttled_producer_ends_its_transactions(broker: RunningBroker, ours: Admin, make_topic: MakeTopic) -> None:
    topic, client = make_topic(), unique("transactional")
    with limited(ours, QuotaEntity(client_id=client), producer_byte_rate=2_000):
        settings = {"bootstrap.servers": broker.bootstrap, "client.id": client, "transactional.id": client}
        producer = confluent_kafka.Producer({**settings, "batch.size": 5_000, "linger.ms": 0})
        producer.init_transactions(WAIT_S)
        for end, records in ((producer.commit_transaction, 5), (producer.abort_transaction, 1)):
            producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, bytes(4_500))
            producer.flush(WAIT_S)
            end(WAIT_S)
    with Consumer({"bootstrap.servers": broker.bootstrap, "isolation.level": "read_committed"}) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        assert len(poll_all(consumer, 5)) == 5
        assert consumer.poll(0.3) == []


@pytest.mark.both
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_throttled_consumer_stays_in_its_group(
    broker: RunningBroker, ours: Admin, make_topic: MakeTopic, protocol: str
) -> None:
    topic, client = make_topic(), unique("member")
    with Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 10_000, "linger.ms": 0}) as producer:
        for _ in range(21):
            producer.send(topic, bytes(9_000)).result(WAIT_S)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": client,
        "group.id": client,
        "auto.offset.reset": "earliest",
        "group.protocol": protocol,
    }
    rebalances: list[object] = []
    with limited(ours, QuotaEntity(client_id=client), consumer_byte_rate=18_000):
        consumer = confluent_kafka.Consumer(settings)
        try:
            consumer.subscribe([topic], on_revoke=lambda _, partitions: rebalances.append(partitions))
            found, deadline = 0, time.monotonic() + 2 * WAIT_S
            while found < 21:
                assert time.monotonic() < deadline
                message = consumer.poll(0.2)
                found += message is not None and message.error() is None
            assert rebalances == []
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


def test_throttled_share_consumer_gets_each_record_once(
    broker: RunningBroker, ours: Admin, make_topic: MakeTopic, share_group: str
) -> None:
    topic, client = make_topic(), unique("share")
    with Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 10_000, "linger.ms": 0}) as producer:
        for number in range(21):
            producer.send(topic, str(number).encode().ljust(9_000)).result(WAIT_S)
    options = {"client.id": client, "fetch.max.bytes": 20_000}
    with (
        limited(ours, QuotaEntity(client_id=client), consumer_byte_rate=18_000),
        share(broker, share_group, topic, **options) as consumer,
    ):
        records = poll_some(consumer, 21)
        assert [int(bytes(record.value or b"")) for record in records] == list(range(21))


def test_quota_is_of_the_authenticated_user(secured_ottla: SecuredOttla) -> None:
    """Not of a name that the client says, and not of the type of the principal."""
    topic, client = unique("users"), unique("client")
    settings = sasl(cast("SecuredKafka", secured_ottla), "PLAIN", "alice") | {"client.id": client}
    with Admin(secured_ottla.address("PLAINTEXT")) as admin:
        admin.create_topic(topic, partitions=1)
        with limited(admin, QuotaEntity(user="alice"), producer_byte_rate=2_000):
            assert took_s(settings, topic) > 0.5
            assert took_s({"bootstrap.servers": secured_ottla.address("PLAINTEXT"), "client.id": "alice"}, topic) < 0.5
        with limited(admin, QuotaEntity(user="alice", client_id="other"), producer_byte_rate=1):
            assert took_s(settings, topic) < 0.5


def took_s(settings: dict[str, Any], topic: str) -> float:
    """How long five requests of 6 kB take on one connection."""
    with Producer({**settings, "linger.ms": 0, "max.in.flight.requests.per.connection": 1}) as producer:
        producer.send(topic, b"warm").result(WAIT_S)
        began_s = time.monotonic()
        for _ in range(5):
            producer.send(topic, bytes(6_000)).result(WAIT_S)
        return time.monotonic() - began_s
