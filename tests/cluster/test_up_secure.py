"""`ottla up --secure`: one command starts a broker or a cluster with users, encryption and mutual TLS between nodes."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla.cli.main import main
from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import Acl, AclOperation, AclResource, ScramUpsertion
from ottla.clients.errors import BrokerUnavailable, ClientError
from ottla.config import load_properties
from ottla.network.sasl_settings import parse_jaas

from .test_up import up

SECRET = "Xq7-never-shown"
TIMEOUT_S = 30.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


def ann(admin: dict[str, str], mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """The client settings of the user ann, by Kafka's names."""
    return {
        "bootstrap.servers": admin["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": SECRET,
        "ssl.truststore.location": admin["ssl.truststore.location"],
    }


def ottla_client(settings: dict[str, str], topic: str) -> None:
    with Producer(settings) as producer:
        producer.send(topic, b"ottla").result(TIMEOUT_S)


def librdkafka(settings: dict[str, str], topic: str) -> None:
    settings = {**settings, "ssl.ca.location": settings["ssl.truststore.location"]}
    del settings["ssl.truststore.location"]
    producer = confluent_kafka.Producer(settings)
    problems: list[Any] = []
    producer.produce(topic, b"librdkafka", on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert problems == [None]


def kafka_python(settings: dict[str, str], topic: str) -> None:
    names = {
        "bootstrap_servers": settings["bootstrap.servers"].split(","),
        "security_protocol": settings["security.protocol"],
        "sasl_mechanism": settings["sasl.mechanism"],
        "sasl_plain_username": settings["sasl.username"],
        "sasl_plain_password": settings["sasl.password"],
        "ssl_cafile": settings["ssl.truststore.location"],
    }
    producer = KafkaProducer(**names)
    try:
        producer.send(topic, b"kafka-python").get(TIMEOUT_S)
    finally:
        producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=2000, **names)
    try:
        assert next(iter(consumer)).value
    finally:
        consumer.close()


CLIENTS: list[Callable[[dict[str, str], str], None]] = [ottla_client, librdkafka, kafka_python]


def test_secure_cluster_serves_users_of_all_clients_and_refuses_others(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with up(home, "--brokers", "3", "--secure", "--listen", "0") as command:
        addresses = command.wait_until_ready()
        path = home / "security" / "admin.properties"
        settings = load_properties(path)
        assert settings["bootstrap.servers"].split(",") == addresses
        with Admin(settings) as admin:
            admin.create_topic("orders", partitions=3, replication_factor=3)
            admin.alter_scram_credentials([ScramUpsertion("ann", SECRET)])
            resource = AclResource.topic("orders")
            admin.create_acls([Acl(resource, "User:ann", each) for each in (AclOperation.READ, AclOperation.WRITE)])
            admin.create_acls([Acl(AclResource.group("readers"), "User:ann", AclOperation.READ)])
            assert len(admin.describe_quorum().voters) == 3
            assert all(len(each.isr) == 3 for each in admin.describe_topic("orders").partitions)
        for client in CLIENTS:
            client(ann(settings), "orders")
        with Consumer(ann(settings), group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            seen: set[bytes | None] = set()
            while len(seen) < len(CLIENTS):
                seen |= {record.value for record in consumer.poll(TIMEOUT_S)}
        for refused in (
            {"bootstrap.servers": addresses[0]},
            ann(settings) | {"sasl.password": "wrong"},
            ann(settings) | {"ssl.truststore.location": "/etc/ssl/certs/ca-certificates.crt"},
        ):
            with pytest.raises(ClientError), Admin(refused, default_api_timeout_ms=3000) as admin:
                admin.list_topics()
        assert command.end(signal.SIGTERM) == 0
    log = command.log.read_text()
    assert "Traceback" not in log
    _, login = parse_jaas(settings["sasl.jaas.config"])
    assert SECRET not in log
    assert login["password"] not in log
    names = {"server.properties", "admin.properties", "ca.key", "keystore.pem"}
    secret = [path for path in home.rglob("*") if path.name in names]
    assert {path.name for path in secret} == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    # The same command starts the cluster again; without --secure nothing starts.
    assert main(["up", "--data", str(home), "--brokers", "3"]) == 1
    assert "without it, everyone could read the data" in capsys.readouterr().err
    with up(home, "--brokers", "3", "--secure", "--listen", "0") as command:
        command.wait_until_ready()
        again = load_properties(path)
        assert again["sasl.jaas.config"] == settings["sasl.jaas.config"]
        ottla_client(ann(again), "orders")
        assert command.end(signal.SIGTERM) == 0


def test_secure_broker_is_one_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(home, "--secure", "--listen", "0") as command:
        (address,) = command.wait_until_ready()
        settings = load_properties(home.parent / "cluster-security" / "admin.properties")
        with Admin(settings) as admin:
            admin.create_topic("orders")
            assert "orders" in [each.name for each in admin.list_topics()]
        with pytest.raises(BrokerUnavailable), Admin(address, default_api_timeout_ms=2000) as admin:
            admin.list_topics()
        assert command.end(signal.SIGTERM) == 0
    assert main(["up", "--data", str(home)]) == 1
    assert "was started with --secure" in capsys.readouterr().err


def test_secure_contradicts_settings_of_the_same_purpose(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-X", "super.users=User:eve"], ["--brokers", "2", "-X", "super.users=User:eve"]):
        assert main(["up", "--data", str(home), "--secure", *words]) == 2
        assert "--secure sets super.users itself" in capsys.readouterr().err
