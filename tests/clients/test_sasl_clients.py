"""Clients that log in to Ottla's SASL listeners: each mechanism, wrong passwords, sessions, changed credentials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from ottla.cli.main import main
from ottla.clients import Admin, AuthenticationFailed, Consumer, Producer
from ottla.clients.admin import ConfigResource, ScramCredential, ScramDeletion, ScramUpsertion
from tests.peers.cache import in_ci, missing_for_jvm, missing_for_node
from tests.peers.kafka import tool
from tests.peers.node import node
from tests.peers.secured import SESSION_MS, SecuredKafka, password_of

from . import test_ottla_security
from .secured import sasl
from .secured_ottla import MECHANISMS, SecuredOttla
from .support import WAIT_S, collect_left_sockets, unique, wait_until

# kafka-python does not close the sockets of abandoned connections; the garbage collector does.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
STORIES = Path(__file__).parents[1] / "interop" / "kafkajs" / "sasl.js"
EACH_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)


def settings_of(ottla: SecuredOttla, mechanism: str, user: str = "alice", **options: Any) -> dict[str, object]:
    return sasl(cast("SecuredKafka", ottla), mechanism, user, **options)


@pytest.fixture(scope="module", autouse=True)
def _left_sockets() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open."""
    yield
    collect_left_sockets()


@pytest.fixture
def topic(secured_ottla: SecuredOttla) -> Iterator[str]:
    """Return the name of a topic with one partition."""
    name = unique("sasl")
    with Admin(secured_ottla.address("PLAINTEXT")) as admin:
        admin.create_topic(name, partitions=1)
        yield name
        admin.delete_topic(name)


# -- every client -----------------------------------------------------------------------------------------------


def librdkafka_settings(ottla: SecuredOttla, mechanism: str, password: str, listener: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": ottla.address(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "log_level": 0,
    }


@EACH_MECHANISM
def test_librdkafka(secured_ottla: SecuredOttla, topic: str, mechanism: str) -> None:
    settings = librdkafka_settings(secured_ottla, mechanism, password_of("alice"), "SASL_PLAINTEXT")
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


@EACH_MECHANISM
def test_librdkafka_with_a_wrong_password(secured_ottla: SecuredOttla, mechanism: str) -> None:
    errors: list[Any] = []
    settings = librdkafka_settings(secured_ottla, mechanism, "wrong", "SASL_PLAINTEXT")
    client = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    wait_until(lambda: client.poll(0.05) >= 0 and bool(errors), "an error is reported")
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_librdkafka_renews_its_session(secured_ottla: SecuredOttla, topic: str) -> None:
    errors: list[Any] = []
    settings = librdkafka_settings(secured_ottla, "SCRAM-SHA-512", password_of("alice"), "SHORT")
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append, "retries": 0, "linger.ms": 0})
    until = time.monotonic() + SESSION_MS / 1000 * 2.5
    failed: list[Any] = []
    while time.monotonic() < until:
        producer.produce(topic, b"value", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.01)
    assert producer.flush(WAIT_S) == 0
    assert not failed
    assert not errors


def python_settings(ottla: SecuredOttla, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": ottla.address("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@EACH_MECHANISM
def test_kafka_python(secured_ottla: SecuredOttla, topic: str, mechanism: str) -> None:
    settings = python_settings(secured_ottla, mechanism, password_of("alice"))
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(WAIT_S)
    producer.close()
    reading = {"group_id": topic, "auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_S * 1000}
    consumer = KafkaConsumer(topic, **settings, **reading)
    assert next(consumer).value == b"value"
    consumer.close()


def test_kafka_python_with_a_wrong_password(secured_ottla: SecuredOttla) -> None:
    """The client retries until its deadline, and leaves its sockets open."""
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**python_settings(secured_ottla, "SCRAM-SHA-256", "wrong"), bootstrap_timeout_ms=2_000)


@EACH_MECHANISM
def test_aiokafka(secured_ottla: SecuredOttla, topic: str, mechanism: str) -> None:
    async def story() -> None:
        settings = python_settings(secured_ottla, mechanism, password_of("alice"))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        reading = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **settings, **reading) as consumer:
            assert (await consumer.getone()).value == b"value"
        wrong = AIOKafkaProducer(**python_settings(secured_ottla, mechanism, "wrong"))
        with pytest.raises(KafkaError):
            await wrong.start()
        await wrong.stop()

    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))


def test_client_that_does_not_renew_sessions_reconnects(secured_ottla: SecuredOttla, topic: str) -> None:
    async def story() -> None:
        settings = python_settings(secured_ottla, "SCRAM-SHA-256", password_of("alice"))
        async with AIOKafkaProducer(**{**settings, "bootstrap_servers": secured_ottla.address("SHORT")}) as producer:
            until = time.monotonic() + SESSION_MS / 1000 * 1.5
            while time.monotonic() < until:
                await producer.send_and_wait(topic, b"value")
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S))


@pytest.mark.node
def test_kafkajs(secured_ottla: SecuredOttla, topic: str) -> None:
    missing = missing_for_node()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    words = secured_ottla.address("SASL_PLAINTEXT"), topic, "alice", password_of("alice")
    done = node(STORIES, *words, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


@EACH_MECHANISM
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_ottlas_clients(secured_ottla: SecuredOttla, mechanism: str, listener: str) -> None:
    test_ottla_security.round_trip(settings_of(secured_ottla, mechanism, listener=listener))


def test_ottlas_producer_renews_its_session(secured_ottla: SecuredOttla) -> None:
    test_ottla_security.test_session_is_renewed_on_the_same_connection_while_producing(
        cast("SecuredKafka", secured_ottla)
    )


@EACH_MECHANISM
def test_commands(secured_ottla: SecuredOttla, topic: str, mechanism: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(secured_ottla, mechanism)
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    assert main(["topic", "list", *words]) == 0
    assert topic in capsys.readouterr().out
    wrong = [word.replace(password_of("alice"), "wrong") for word in words]
    assert main(["topic", "list", *wrong]) != 0
    assert "refuses to log in" in capsys.readouterr().err


@pytest.mark.jvm
@pytest.mark.xdist_group("stock-kafka")
def test_stock_tools(secured_ottla: SecuredOttla, topic: str, tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    user = unique("user")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        add = f"{mechanism}=[iterations=8192,password=first-secret]"
        changing = "configs", "--bootstrap-server", secured_ottla.address("PLAINTEXT"), "--entity-type", "users"
        done = tool(*changing, "--entity-name", user, "--alter", "--add-config", add)
        assert "Completed updating config for user" in done.stdout, done.stdout + done.stderr
        described = tool(*changing, "--entity-name", user, "--describe")
        assert f"{mechanism}=iterations=8192" in described.stdout
        file = tmp_path / f"{mechanism}.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        jaas = f'{module} username="{user}" password="first-secret";'
        lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]
        file.write_text("\n".join(lines))
        server = "--bootstrap-server", secured_ottla.address("SASL_PLAINTEXT"), "--topic", topic
        done = tool("console-producer", *server, "--command-config", file, input=f"{mechanism}\n")
        assert done.returncode == 0, done.stdout + done.stderr
        reading = "--from-beginning", "--max-messages", 1, "--timeout-ms", 20_000
        done = tool("console-consumer", *server, "--command-config", file, *reading)
        assert done.stdout.splitlines() == ["SCRAM-SHA-256"], done.stdout + done.stderr
        done = tool(*changing, "--entity-name", user, "--alter", "--delete-config", mechanism)
        assert "Completed updating config for user" in done.stdout, done.stdout + done.stderr
        done = tool("console-producer", *server, "--command-config", file, input="x\n")
        assert "invalid credentials with SASL mechanism" in done.stdout + done.stderr


# -- secrets ----------------------------------------------------------------------------------------------------


def test_described_settings_have_no_secret(secured_ottla: SecuredOttla) -> None:
    with Admin(secured_ottla.address("PLAINTEXT")) as admin:
        (settings,) = admin.describe_configs([ConfigResource.broker(1)], synonyms=True).values()
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert password_of("alice") not in repr(settings)
    assert settings[name].value is None
    assert settings[name].is_sensitive


# -- changed credentials ----------------------------------------------------------------------------------------


def test_credentials_change_while_they_are_used(secured_ottla: SecuredOttla, topic: str) -> None:
    """As in Kafka, a connection stays authenticated; each new log-in needs the present password."""
    user = unique("user")
    first, second = (
        settings_of(secured_ottla, "SCRAM-SHA-256", user, settings={"sasl.password": password})
        for password in ("first", "second")
    )
    with Admin(secured_ottla.address("PLAINTEXT")) as admin:
        admin.alter_scram_credentials([ScramUpsertion(user, "first", "SCRAM-SHA-256", iterations=4096)])
        with Producer(first) as producer:
            producer.send(topic, b"1").result(WAIT_S)
            admin.alter_scram_credentials([ScramUpsertion(user, "second", "SCRAM-SHA-256", iterations=5000)])
            producer.send(topic, b"2").result(WAIT_S)
            with pytest.raises(AuthenticationFailed), Admin(first):
                pass
            with Admin(second) as theirs:
                assert theirs.describe_cluster().brokers
            expected = {user: (ScramCredential("SCRAM-SHA-256", 5000),)}
            assert admin.describe_scram_credentials([user]) == expected
            admin.alter_scram_credentials([ScramDeletion(user, "SCRAM-SHA-256")])
            producer.send(topic, b"3").result(WAIT_S)
            with pytest.raises(AuthenticationFailed), Admin(second):
                pass


def test_deleted_user_cannot_renew_a_session(secured_ottla: SecuredOttla, topic: str) -> None:
    user = unique("user")
    settings = settings_of(secured_ottla, "SCRAM-SHA-512", user, listener="SHORT", settings={"sasl.password": "first"})
    with Admin(secured_ottla.address("PLAINTEXT")) as admin:
        admin.alter_scram_credentials([ScramUpsertion(user, "first")])
        with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([topic])
            consumer.poll(0.2)
            admin.alter_scram_credentials([ScramDeletion(user, "SCRAM-SHA-512")])
            with pytest.raises(AuthenticationFailed):
                poll_for(consumer, SESSION_MS / 1000 * 3)


def poll_for(consumer: Consumer, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        consumer.poll(0.2)


def test_dynamic_users_of_plain_count_after_a_restart(tmp_path: Path) -> None:
    """As in Kafka, a listener has the settings of its start. A setting that is wrong must not stop the node."""
    ottla = SecuredOttla(tmp_path)
    ottla.format()
    name = "listener.name.short.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    carol = settings_of(ottla, "PLAIN", "carol", listener="SHORT", settings={"sasl.password": "hush-hush"})
    alice = settings_of(ottla, "PLAIN", listener="SHORT")
    with ottla:
        for value, good, bad in ((f'{module} user_carol="hush-hush";', carol, alice), ("wrong", alice, carol)):
            with Admin(ottla.address("PLAINTEXT")) as admin:
                admin.alter_configs({ConfigResource.broker(1): {name: value}})
            ottla.stop()
            ottla.start()
            with Admin(good) as admin:
                assert admin.describe_cluster().brokers
            with pytest.raises(AuthenticationFailed), Admin(bad):
                pass
    log = ottla.log_path.read_text()
    assert "hush-hush" not in log
    assert f"{name} -> [hidden]" in log
    assert "Ignoring the dynamic settings of SASL: listener SHORT: PLAIN: sasl.jaas.config is not of the form" in log
