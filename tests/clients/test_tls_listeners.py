"""TLS listeners with librdkafka, kafka-python, aiokafka, and Ottla's own clients and command."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaConsumer, KafkaProducer

from ottla.clients import Admin, BrokerUnavailable, Consumer, Producer, TlsFailed, TopicAuthorizationFailed
from ottla.clients.admin import Acl, AclOperation, AclResource
from tests.peers.secured import password_of

from .support import WAIT_S, unique, wait_until
from .tls_ottla import TlsOttla

pytestmark = pytest.mark.xdist_group("tls-ottla")

# Larger than what the sockets and TLS buffer: the broker has to pause within a response.
LARGE = [bytes([i]) * 900_000 for i in range(8)]
SOON = {"default.api.timeout.ms": 3_000, "request.timeout.ms": 2_000}


def log_in(listener: str) -> dict[str, str]:
    """The settings of SASL, if the listener has it."""
    if listener != "SASL_SSL":
        return {"security.protocol": "SSL"}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password_of("alice"),
    }


def librdkafka(ottla: TlsOttla, listener: str, identity: str | None = None, **more: Any) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": ottla.address(listener),
        "ssl.ca.location": str(ottla.certificates.ca),
        "log_level": 0,
        **log_in(listener),
    }
    if identity is not None:
        settings["ssl.certificate.location"] = str(ottla.certificates.directory / f"{identity}.crt")
        settings["ssl.key.location"] = str(ottla.certificates.directory / f"{identity}.key")
    return settings | more


def own(ottla: TlsOttla, listener: str, identity: str | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": ottla.address(listener),
        "ssl.truststore.location": str(ottla.certificates.ca),
        **log_in(listener),
    }
    if identity is not None:
        settings["ssl.keystore.location"] = str(ottla.certificates.directory / f"{identity}.pem")
    return settings


def pythonic(ottla: TlsOttla, listener: str, identity: str | None = None) -> dict[str, Any]:
    """Settings of kafka-python."""
    settings: dict[str, Any] = {
        "bootstrap_servers": ottla.address(listener),
        "ssl_cafile": str(ottla.certificates.ca),
        **{name.replace(".", "_"): value for name, value in log_in(listener).items()},
    }
    if "sasl_username" in settings:
        settings["sasl_plain_username"] = settings.pop("sasl_username")
        settings["sasl_plain_password"] = settings.pop("sasl_password")
    if identity is not None:
        settings["ssl_certfile"] = str(ottla.certificates.directory / f"{identity}.crt")
        settings["ssl_keyfile"] = str(ottla.certificates.directory / f"{identity}.key")
    return settings


LISTENERS = pytest.mark.parametrize(("listener", "identity"), [("SSL", None), ("MTLS", "client"), ("SASL_SSL", None)])


# -- clients ---------------------------------------------------------------------------------------------------


@LISTENERS
def test_librdkafka_writes_and_reads_large_records(tls_ottla: TlsOttla, listener: str, identity: str | None) -> None:
    topic, settings = unique("tls"), librdkafka(tls_ottla, listener, identity)
    producer = LibrdkafkaProducer(settings)
    for value in LARGE:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.max.bytes": 50 << 20}
    consumer = LibrdkafkaConsumer(settings | group | {"max.partition.fetch.bytes": 20 << 20})
    consumer.subscribe([topic])
    values: list[bytes] = []
    wait_until(lambda: _poll(consumer, values) == len(LARGE), "all records", 2 * WAIT_S)
    consumer.close()
    assert values == LARGE


def _poll(consumer: LibrdkafkaConsumer, values: list[bytes]) -> int:
    message = consumer.poll(0.2)
    if message is not None:
        assert message.error() is None, message.error()
        values.append(message.value())
    return len(values)


@LISTENERS
def test_kafka_python_writes_and_reads_large_records(tls_ottla: TlsOttla, listener: str, identity: str | None) -> None:
    topic, settings = unique("tls"), pythonic(tls_ottla, listener, identity)
    producer = KafkaProducer(**settings)
    try:
        for value in LARGE:
            producer.send(topic, value).get(WAIT_S)
    finally:
        producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000), group_id=None, **settings
    )
    try:
        values = [next(consumer).value for _ in LARGE]
    finally:
        consumer.close()
    assert values == LARGE


@LISTENERS
def test_aiokafka_writes_and_reads_large_records(tls_ottla: TlsOttla, listener: str, identity: str | None) -> None:
    topic, settings = unique("tls"), pythonic(tls_ottla, listener, identity)
    context = ssl.create_default_context(cafile=settings.pop("ssl_cafile"))
    if identity is not None:
        context.load_cert_chain(settings.pop("ssl_certfile"), settings.pop("ssl_keyfile"))

    async def story() -> None:
        async with AIOKafkaProducer(ssl_context=context, **settings) as producer:
            for value in LARGE:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", ssl_context=context, **settings)
        async with consumer:
            assert [(await consumer.getone()).value for _ in LARGE] == LARGE

    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))


@LISTENERS
def test_own_clients_write_and_read_large_records(tls_ottla: TlsOttla, listener: str, identity: str | None) -> None:
    topic, settings = unique("tls"), own(tls_ottla, listener, identity)
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topic(topic, partitions=1)
        for value in LARGE:
            producer.send(topic, value).result(WAIT_S)
    with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []

        def has_all() -> bool:
            values.extend(record.value for record in consumer.poll(0.2))
            return len(values) == len(LARGE)

        wait_until(has_all, "all records")
    assert values == LARGE


def test_command_connects_with_tls(tls_ottla: TlsOttla) -> None:
    words = [sys.executable, "-m", "ottla.cli.main", "topic", "list", "-b", tls_ottla.address("MTLS")]
    for name, value in own(tls_ottla, "MTLS", "client").items():
        if name != "bootstrap.servers":
            words += ["-X", f"{name}={value}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


# -- refusals --------------------------------------------------------------------------------------------------


def librdkafka_error(settings: dict[str, Any]) -> str:
    """Return the error with which librdkafka refuses the broker, or the broker refuses librdkafka."""
    problems: list[KafkaError] = []
    client = LibrdkafkaProducer(settings | {"error_cb": problems.append})
    wait_until(lambda: client.poll(0.05) >= 0 and bool(problems), "an error")
    return str(problems[0])


@pytest.mark.parametrize(
    ("listener", "identity", "words", "broker_words"),
    [
        ("MTLS", None, "certificate required", "the client has no certificate, and ssl.client.auth=required"),
        ("MTLS", "other-client", "unknown ca", "the client's certificate is not valid here"),
        ("WRONG_HOST", None, "certificate verify failed", "does not trust this broker's certificate"),
        ("EXPIRED", None, "certificate verify failed", "does not trust this broker's certificate"),
    ],
)
def test_wrong_certificate_is_refused_with_a_reason(
    tls_ottla: TlsOttla, listener: str, identity: str | None, words: str, broker_words: str
) -> None:
    since = tls_ottla.log_size()
    assert words in librdkafka_error(librdkafka(tls_ottla, listener, identity))
    wait_until(lambda: broker_words in tls_ottla.log_tail(since), "a line in the broker's log")
    with (
        pytest.raises((TlsFailed, BrokerUnavailable)) as caught,
        Admin(own(tls_ottla, listener, identity) | SOON) as it,
    ):
        it.list_topics()
    assert "certificate" in str(caught.value).lower() or "ca" in str(caught.value).lower()


def test_protocol_of_the_wrong_listener_is_refused_with_a_reason(tls_ottla: TlsOttla) -> None:
    since = tls_ottla.log_size()
    plain = {"bootstrap.servers": tls_ottla.address("SSL"), "log_level": 0}
    librdkafka_error(plain)
    wait_until(lambda: "the client does not speak TLS" in tls_ottla.log_tail(since), "a line in the broker's log")
    with (
        pytest.raises(BrokerUnavailable, match=r"wants TLS: set security.protocol to SSL"),
        Admin(plain_own(plain)) as it,
    ):
        it.list_topics()
    secured = librdkafka(tls_ottla, "PLAINTEXT")
    librdkafka_error(secured)
    wait_until(lambda: "the client speaks TLS, this listener does not" in tls_ottla.log_tail(since), "another line")


def plain_own(settings: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": settings["bootstrap.servers"], **SOON}


# -- principals ------------------------------------------------------------------------------------------------


def test_principal_of_a_certificate_has_the_rights_of_its_rules(tls_ottla: TlsOttla) -> None:
    topic = unique("owned")
    named = own(tls_ottla, "MTLS", "client")
    with Admin(own(tls_ottla, "SSL")) as admin:
        admin.create_topic(topic, partitions=1)
        admin.create_acls([Acl(AclResource.topic(topic), "User:bob", AclOperation.ALL)])
        with Producer(named, max_block_ms=3_000) as producer, pytest.raises(TopicAuthorizationFailed):
            producer.send(topic, b"x").result(WAIT_S)
        admin.create_acls([Acl(AclResource.topic(topic), "User:client", AclOperation.ALL)])
        with Producer(named) as producer:
            assert producer.send(topic, b"x").result(WAIT_S).offset == 0


# -- new certificates ------------------------------------------------------------------------------------------


def presented(ottla: TlsOttla, listener: str) -> str:
    return ssl.get_server_certificate(("127.0.0.1", ottla.port(listener)), timeout=WAIT_S)


def test_certificate_changes_by_a_setting_while_clients_stay_connected(tls_ottla: TlsOttla) -> None:
    name = "listener.name.reloaded.ssl.keystore.location"
    certificates, before = tls_ottla.certificates, presented(tls_ottla, "RELOADED")
    renewed = tls_ottla.directory / "renewed.pem"
    certificates._signed("server", "DNS:localhost,IP:127.0.0.1")  # the same names and authority, another key
    shutil.copy(certificates.server, renewed)
    topic = unique("tls")
    producer = LibrdkafkaProducer(librdkafka(tls_ottla, "RELOADED"))
    producer.produce(topic, b"before")
    assert producer.flush(WAIT_S) == 0
    admin = AdminClient(librdkafka(tls_ottla, "SSL"))

    def alter(value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    with pytest.raises(KafkaException, match=r"Validation of dynamic config update of SSLFactory failed.*No such file"):
        alter("/no/such.pem")
    with pytest.raises(KafkaException, match="Keystore DistinguishedName does not match"):
        alter(str(certificates.client))
    assert presented(tls_ottla, "RELOADED") == before
    alter(str(renewed))
    wait_until(lambda: presented(tls_ottla, "RELOADED") != before, "the new certificate")
    producer.produce(topic, b"after")
    assert producer.flush(WAIT_S) == 0

    # The file may also be replaced. A damaged one leaves the certificate in use.
    current, since = presented(tls_ottla, "RELOADED"), tls_ottla.log_size()
    renewed.write_text("half a certif")
    wait_until(lambda: "The certificate of listener RELOADED stays as it was" in tls_ottla.log_tail(since), "a line")
    assert presented(tls_ottla, "RELOADED") == current
    certificates._signed("server", "DNS:localhost,IP:127.0.0.1")
    shutil.copy(certificates.server, renewed)
    wait_until(lambda: presented(tls_ottla, "RELOADED") != current, "the certificate of the new file")


def test_stop_of_the_broker_ends_tls_cleanly(tls_ottla: TlsOttla) -> None:
    """A clean stop sends the end of TLS, so that a client does not report a truncated stream."""
    context = ssl.create_default_context(cafile=str(tls_ottla.certificates.ca))
    sock = socket.create_connection(("127.0.0.1", tls_ottla.port("RELOADED")), timeout=WAIT_S)
    with sock, context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
        tls_ottla.stop()
        assert tls.recv(1) == b""
    tls_ottla.start()
