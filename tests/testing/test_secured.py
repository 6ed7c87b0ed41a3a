"""Secured brokers of the plugin: three client libraries log in with the settings that the plugin gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaProducer

from ottla.clients import Admin, Producer
from ottla.clients.errors import ClientError
from ottla.testing import Ottla
from ottla.testing.secured import PROTOCOLS

from .test_plugin import Run

TIMEOUT_S = 20.0
MakeBroker = Callable[..., Ottla]


def send_by_ottla(kafka: Ottla, topic: str, user: str | None = None) -> None:
    with Producer(kafka.settings(user=user)) as producer:
        producer.send(topic, b"ottla").result(TIMEOUT_S)


def send_by_librdkafka(kafka: Ottla, topic: str, user: str | None = None) -> None:
    problems: list[Any] = []
    producer = confluent_kafka.Producer(kafka.settings("confluent-kafka", user=user))
    producer.produce(topic, b"confluent-kafka", on_delivery=lambda error, _: problems.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert problems == [None]


def send_by_kafka_python(kafka: Ottla, topic: str, user: str | None = None) -> None:
    producer = KafkaProducer(**kafka.settings("kafka-python", user=user))
    try:
        producer.send(topic, b"kafka-python").get(TIMEOUT_S)
    finally:
        producer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_library_logs_in_with_the_given_settings(ottla_broker: MakeBroker, protocol: str) -> None:
    kafka = ottla_broker(security=protocol, users=["ann", "bob"])
    topic = kafka.topic()
    for send in (send_by_ottla, send_by_librdkafka, send_by_kafka_python):
        send(kafka, topic)
        send(kafka, topic, "bob")
    assert len(kafka.consume(topic, n=6)) == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_without_the_settings_is_refused(ottla_broker: MakeBroker, protocol: str) -> None:
    kafka = ottla_broker(security=protocol)
    without = {"bootstrap.servers": kafka.bootstrap}
    wrong = kafka.settings() | {"sasl.password": "wrong"} if "SASL" in protocol else without
    for settings in (without, wrong):
        with pytest.raises(ClientError), Admin(settings, default_api_timeout_ms=1500) as admin:
            admin.list_topics()


@pytest.mark.parametrize(("protocol", "principal"), [("SASL_PLAINTEXT", "User:ann"), ("SSL", "User:CN=ann")])
def test_users_of_a_broker_with_an_authorizer_need_rights(
    ottla_broker: MakeBroker, protocol: str, principal: str
) -> None:
    kafka = ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": principal,
        },
        security=protocol,
        users=["ann", "bob"],
    )
    topic = kafka.topic()
    send_by_ottla(kafka, topic, "ann")
    with pytest.raises(ClientError):
        send_by_ottla(kafka, topic, "bob")


@pytest.mark.ottla(security="SASL_SSL")
def test_marker_gives_the_fixture_a_secured_broker(ottla: Ottla) -> None:
    assert ottla.settings()["security.protocol"] == "SASL_SSL"
    send_by_ottla(ottla, ottla.topic())


def test_plain_broker_has_settings_too(ottla: Ottla) -> None:
    assert ottla.settings("kafka-python") == {"bootstrap_servers": ottla.bootstrap}
    with pytest.raises(ValueError, match="this broker has no users"):
        ottla.settings(user="ann")


def test_wrong_arguments_are_errors(ottla_broker: MakeBroker) -> None:
    with pytest.raises(ValueError, match="is not one of SSL, SASL_PLAINTEXT, SASL_SSL"):
        ottla_broker(security="TLS")
    with pytest.raises(ValueError, match="users are for a secured broker"):
        ottla_broker(users=["ann"])
    kafka = ottla_broker(security="SASL_PLAINTEXT")
    with pytest.raises(ValueError, match="library='java' is not one of ottla, confluent-kafka, kafka-python"):
        kafka.settings("java")
    with pytest.raises(ValueError, match="user='eve' is not one of test"):
        kafka.settings(user="eve")


def test_secured_broker_runs_in_a_process_and_keeps_its_users(tmp_path: Any) -> None:
    text = """
        from ottla.clients import Producer

        def test_it(ottla_broker):
            kafka = ottla_broker(security="SASL_SSL", users=["ann"])
            topic = kafka.topic()
            for _ in range(2):
                with Producer(kafka.settings()) as producer:
                    producer.send(topic, b"x").result(20)
                kafka.kill()
                kafka.start()
            assert len(kafka.consume(topic, n=2)) == 2
    """
    code, out = Run(tmp_path)(text, "--ottla=process")
    assert code == 0, out
