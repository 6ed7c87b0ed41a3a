"""Teams on one broker: each client library reports a missing right as its own error, and works with the right.

`alice` may write and read the topic in the group `team`, and write the transactional id `team`; `reader` has no right.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    ConfigResource,
    PartialFailure,
    ResourceType,
)
from ottla.clients.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tests.peers.kafka import tool
from tests.peers.secured import password_of

from .metrics_receiver import Receiver
from .secured_ottla import SecuredOttla
from .support import WAIT_S, collect_left_sockets, unique, wait_until

# kafka-python does not close the sockets of abandoned connections; the garbage collector does.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
TOPIC, TEAM = "shared", "team"
WAIT_MS = int(WAIT_S * 1000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    """A broker with an authorizer that takes metrics, with the topic and the rules."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ottla.metrics.listener": "127.0.0.1:0",
    }
    ottla = SecuredOttla(tmp_path_factory.mktemp("teams"), settings)
    ottla.format()
    ottla.start()
    with Admin(ottla.address("PLAINTEXT")) as admin:
        admin.create_topic(TOPIC, partitions=1)
        admin.create_acls(
            [
                Acl(AclResource.topic(TOPIC), "User:alice", AclOperation.WRITE),
                Acl(AclResource.topic(TOPIC), "User:alice", AclOperation.READ),
                Acl(AclResource.group(TEAM), "User:alice", AclOperation.READ),
                Acl(AclResource.transactional_id(TEAM), "User:alice", AclOperation.WRITE),
                # `reader` sees the topic, so that its consumers get as far as their group.
                Acl(AclResource.topic(TOPIC), "User:reader", AclOperation.DESCRIBE),
            ]
        )
    yield ottla
    assert ottla.stop() == 0
    ottla.assert_no_traceback()
    collect_left_sockets()


@pytest.fixture
def address(broker: SecuredOttla) -> str:
    """The SASL listener of the broker."""
    return broker.address("SASL_PLAINTEXT")


def librdkafka(address: str, user: str, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password_of(user),
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in options.items()},
    }


def confluent_produce(address: str, user: str) -> None:
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(librdkafka(address, user))
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    if errors[0] is not None:
        raise confluent_kafka.KafkaException(errors[0])


def confluent_consume(address: str, user: str) -> None:
    options = librdkafka(address, user, group_id=TEAM, auto_offset_reset="earliest")
    consumer = confluent_kafka.Consumer(options)
    try:
        consumer.subscribe([TOPIC])
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
    finally:
        consumer.close()


def confluent_transact(address: str, user: str) -> None:
    producer = confluent_kafka.Producer(librdkafka(address, user, transactional_id=TEAM))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"v")
    producer.commit_transaction(WAIT_S)


def test_librdkafka(address: str) -> None:
    codes = {
        confluent_produce: confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_consume: confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
        confluent_transact: confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
    for act, code in codes.items():
        act(address, "alice")
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            act(address, "reader")
        assert caught.value.args[0].code() == code


def python_settings(address: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password_of(user),
    }


def test_kafka_python(address: str) -> None:
    def produce(user: str) -> None:
        producer = kafka.KafkaProducer(**python_settings(address, user), enable_idempotence=False)
        try:
            producer.send(TOPIC, b"v").get(WAIT_S)
        finally:
            producer.close(WAIT_S)

    def consume(user: str) -> None:
        options = {"group_id": TEAM, "auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_MS}
        consumer = kafka.KafkaConsumer(TOPIC, **python_settings(address, user), **options)
        try:
            assert next(consumer).value == b"v"
        finally:
            consumer.close()

    for act, error in (
        (produce, kafka.errors.TopicAuthorizationFailedError),
        (consume, kafka.errors.GroupAuthorizationFailedError),
    ):
        act("alice")
        with pytest.raises(error):
            act("reader")


@asynccontextmanager
async def client(each: Any) -> AsyncIterator[Any]:
    """Start a client of aiokafka, and stop it also if the start fails."""
    try:
        await each.start()
        yield each
    finally:
        await each.stop()


def test_aiokafka(address: str) -> None:
    async def produce(user: str) -> None:
        async with client(aiokafka.AIOKafkaProducer(**python_settings(address, user))) as producer:
            await producer.send_and_wait(TOPIC, b"v")

    async def consume(user: str) -> None:
        options = {"group_id": TEAM, "auto_offset_reset": "earliest"}
        async with client(aiokafka.AIOKafkaConsumer(TOPIC, **python_settings(address, user), **options)) as consumer:
            assert (await consumer.getone()).value == b"v"

    async def transact(user: str) -> None:
        options = {**python_settings(address, user), "transactional_id": TEAM}
        async with client(aiokafka.AIOKafkaProducer(**options)) as producer, producer.transaction():
            await producer.send_and_wait(TOPIC, b"v")

    for act, error in (
        (produce, aiokafka.errors.TopicAuthorizationFailedError),
        (consume, aiokafka.errors.GroupAuthorizationFailedError),
        (transact, aiokafka.errors.TransactionalIdAuthorizationFailed),
    ):
        asyncio.run(asyncio.wait_for(act("alice"), WAIT_S))
        with pytest.raises(error):
            asyncio.run(asyncio.wait_for(act("reader"), WAIT_S))


def own_settings(address: str, user: str, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password_of(user),
        **options,
    }


def test_own_clients(address: str) -> None:
    def produce(user: str) -> None:
        with Producer(own_settings(address, user)) as producer:
            producer.send(TOPIC, b"v").result(WAIT_S)

    def consume(user: str) -> None:
        options = {"group.id": TEAM, "auto.offset.reset": "earliest"}
        with Consumer(own_settings(address, user, **options)) as consumer:
            consumer.subscribe([TOPIC])
            assert consumer.poll(WAIT_S)

    def transact(user: str) -> None:
        with Producer(own_settings(address, user, **{"transactional.id": TEAM})) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(TOPIC, b"v")

    acts: dict[Callable[[str], None], type[Exception]] = {
        # Its producer is idempotent: it needs Write of any topic, or IdempotentWrite of the cluster (KIP-679).
        produce: ClusterAuthorizationFailed,
        consume: GroupAuthorizationFailed,
        transact: TransactionalIdAuthorizationFailed,
    }
    for act, error in acts.items():
        act("alice")
        with pytest.raises(error):
            act("reader")


@pytest.mark.jvm
def test_any_user_pushes_metrics_and_only_users_with_rights_of_the_cluster_ask_for_them(broker: SecuredOttla) -> None:
    client_id, receiver = unique("pushing"), Receiver(broker)
    resource = ConfigResource(ResourceType.CLIENT_METRICS, unique("subscription"))
    changes = {resource: {"metrics": "*", "interval.ms": "100", "match": f"client_id={client_id}"}}
    rights = [
        Acl(AclResource.cluster(), "User:alice", operation)
        for operation in (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
    ]
    address = broker.address("SASL_PLAINTEXT")
    with Admin(broker.address("PLAINTEXT")) as root, Admin(own_settings(address, "alice")) as admin:
        for act in (lambda: admin.alter_configs(changes), lambda: admin.describe_configs([resource])):
            with pytest.raises(PartialFailure) as caught:
                act()
            assert isinstance(caught.value.errors[resource], ClusterAuthorizationFailed)
        root.create_acls(rights)
        admin.alter_configs(changes)
        wait_until(lambda: admin.describe_configs([resource])[resource]["metrics"].value == "*", "the subscription")
        with Producer(own_settings(address, "reader", **{"client.id": client_id})) as producer:
            instance_id = producer.client_instance_id()
            receiver.wait_for(client_id, "kafka_client_producer_connection_creation_total")
            info = [
                line for line in receiver.scrape().splitlines() if "telemetry_info{" in line and instance_id in line
            ]
            assert len(info) == 1
            assert 'principal="User:reader"' in info[0]
        root.delete_acls([AclFilter.exactly(right) for right in rights])


def test_kafkas_own_tools(address: str, tmp_path: Path) -> None:
    def run(name: str, user: str, *options: str, text: str = "") -> str:
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        settings = tmp_path / f"{user}.properties"
        settings.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={jaas} username="{user}" password="{password_of(user)}";\n'
        )
        common = ("--bootstrap-server", address, "--topic", TOPIC, "--command-config", settings)
        done = tool(name, *common, *options, input=text, timeout=60)
        return done.stdout + done.stderr

    assert "Exception" not in run("console-producer", "alice", text="v\n")
    assert "ClusterAuthorizationException" in run("console-producer", "reader", text="v\n")
    limits = ("--group", TEAM, "--from-beginning", "--max-messages", "1", "--timeout-ms", str(WAIT_MS))
    assert "Processed a total of 1 messages" in run("console-consumer", "alice", *limits)
    assert "GroupAuthorizationException" in run("console-consumer", "reader", *limits)
