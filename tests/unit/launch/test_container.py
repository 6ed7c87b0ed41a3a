"""The entry point of the container image: settings from variables, and Kafka's tools as `ottla` commands."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from ottla.common.failure import Failure
from ottla.config import BrokerConfig
from ottla.launch import container, container_probe
from ottla.launch.container import Directories
from ottla.launch.container_tools import ottla_words
from tests.deadlines import in_threads, results


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    for name in ("opt/kafka/config", "etc/kafka/docker", "mnt/shared/config", "etc/kafka/secrets"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc/kafka/docker/server.properties").write_text("node.id=1\n")
    return Directories.of({"OTTLA_CONTAINER_ROOT": str(tmp_path)})


def configured(environment: dict[str, str], directories: Directories) -> dict[str, str]:
    environment["OTTLA_CONTAINER_ROOT"] = str(directories.final.parents[2])
    lines = container.configure(environment).read_text().split("\n")
    return dict(line.split("=", 1) for line in lines if line)


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B_C", "a-b.c"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG", "listener.name.sasl_ssl.plain.sasl.jaas.config"),
        ("KAFKA_OTTLA_METRICS_LISTENER", "ottla.metrics.listener"),
    ],
)
def test_underscores_are_dots_two_are_one_and_three_are_a_dash(variable: str, setting: str) -> None:
    assert container.property_name(variable) == setting


def test_variables_of_the_jvm_are_named_and_ignored(
    directories: Directories, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"KAFKA_NODE_ID": "3", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_LOG4J_LOGGERS": "a=DEBUG"}
    assert configured({**environment, "PATH": "/bin"}, directories) == {"node.id": "3"}
    printed = capsys.readouterr().out
    assert "KAFKA_HEAP_OPTS has no effect: Ottla has no JVM" in printed
    assert "KAFKA_LOG4J_LOGGERS has no effect" in printed


def test_mounted_file_comes_first_and_the_defaults_only_without_both(directories: Directories) -> None:
    assert configured({}, directories) == {"node.id": "1"}
    (directories.mounted / "server.properties").write_text("node.id=4\nnum.partitions=2\n")
    assert configured({"KAFKA_NODE_ID": "5"}, directories) == {"node.id": "5", "num.partitions": "2"}
    assert (directories.final / "server.properties").stat().st_mode & 0o077 == 0


def test_listeners_follow_from_advertised_listeners(directories: Directories) -> None:
    found = configured({"KAFKA_ADVERTISED_LISTENERS": "A://kafka:9092,B://localhost:29092"}, directories)
    assert found["listeners"] == "A://0.0.0.0:9092,B://0.0.0.0:29092"


def test_controller_advertises_nothing(directories: Directories) -> None:
    environment = {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": ""}
    assert configured(environment, directories) == {"process.roles": "controller"}
    with pytest.raises(Failure, match="not supported on a KRaft controller"):
        configured({**environment, "KAFKA_ADVERTISED_LISTENERS": "A://a:1"}, directories)


def test_stores_and_passwords_are_read_from_the_secrets(directories: Directories) -> None:
    environment = {
        "KAFKA_ADVERTISED_LISTENERS": "SSL://kafka:9093",
        "KAFKA_SSL_KEYSTORE_FILENAME": "kafka.p12",
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store",
        "KAFKA_SSL_KEY_CREDENTIALS": "key",
        "KAFKA_SSL_CLIENT_AUTH": "required",
        "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.p12",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust",
    }
    with pytest.raises(Failure, match=r"kafka.p12 does not exist"):
        configured(dict(environment), directories)
    for name, text in {"kafka.p12": "", "trust.p12": "", "store": "s\n", "key": "k\n", "trust": "t\n"}.items():
        (directories.secrets / name).write_text(text)
    with pytest.raises(Failure, match="KAFKA_SSL_KEY_CREDENTIALS environment variable not set"):
        configured({**environment, "KAFKA_SSL_KEY_CREDENTIALS": ""}, directories)
    found = configured(dict(environment), directories)
    assert found["ssl.keystore.location"] == str(directories.secrets / "kafka.p12")
    passwords = ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password")
    assert [found[name] for name in passwords] == ["s", "k", "t"]


def test_clients_need_no_login_unless_a_setting_says_so(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("node.id=1\n")
    assert container.broker_words({}, properties) == ["up", "--config", str(properties), "--insecure"]
    assert "--insecure" not in container.broker_words({"OTTLA_INSECURE": "false"}, properties)
    properties.write_text("ottla.insecure=false\n")
    assert "--insecure" not in container.broker_words({}, properties)
    assert container.broker_words({"OTTLA_LOG_LEVEL": "debug"}, properties)[-2:] == ["--log-level", "debug"]


def test_storage_is_formatted_with_the_id_of_the_cluster(tmp_path: Path) -> None:
    def words(**environment: str) -> list[str]:
        return container.format_words(environment, tmp_path)

    assert "--cluster-id=5L6g3nShT-eMCtK--X86sw" in words()
    # In plain base64, as testcontainers for Python writes it.
    assert "--cluster-id=-_6g3nShT-eMCtK--X86sw" in words(CLUSTER_ID="+/6g3nShT+eMCtK++X86sw==")
    assert words(OTTLA_FORMAT_OPTIONS="--standalone")[-1] == "--standalone"


def test_tools_of_kafka_are_ottla_commands() -> None:
    def words(*given: str) -> list[str] | str:
        return ottla_words(given, ["format", "--config", "f"])

    assert words("kafka-topics", "--bootstrap-server", "a:1", "--list") == [
        "topic",
        "list",
        "--bootstrap-server",
        "a:1",
    ]
    create = ("/opt/kafka/bin/kafka-topics.sh", "--create", "--topic", "t", "--partitions", "3", "--if-not-exists")
    assert words(*create) == ["topic", "create", "t", "--partitions", "3", "--if-not-exists"]
    assert words("kafka-topics", "--delete", "--topic=t") == ["topic", "delete", "t", "--yes"]
    assert words("kafka-storage", "format", "--ignore-formatted", "-t", "x", "-c", "/etc/kafka/kafka.properties") == [
        "format", "--config", "f",
    ]  # fmt: skip
    assert len(words("kafka-storage", "random-uuid")) == 22
    assert words("kafka-broker-api-versions", "-b", "a:1") == ["cluster", "-b", "a:1"]
    with pytest.raises(Failure, match="kafka-topics: choose one of"):
        words("kafka-topics", "--alter")
    with pytest.raises(Failure, match="kafka-acls is not in this image") as failure:
        words("kafka-acls", "--list")
    assert failure.value.exit_code == 127


def target(environment: dict[str, str], directories: Directories) -> tuple[str, str, str]:
    return container.health_target(BrokerConfig(configured(environment, directories)))


def environment_of(listeners: str, **variables: str) -> dict[str, str]:
    return {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": listeners,
        "KAFKA_ADVERTISED_LISTENERS": listeners.partition(",CONTROLLER")[0].replace("[::]", "a").replace("//:", "//a:"),
        "KAFKA_INTER_BROKER_LISTENER_NAME": listeners.partition(":")[0],
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:SSL,SECURE:SASL_SSL,INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **variables,
    }


@pytest.mark.parametrize(
    ("listeners", "asked"),
    [
        ("PLAINTEXT://:19092,CONTROLLER://:9093", ("kafka", "127.0.0.1", "19092")),
        ("SECURE://:9094,INSIDE://[::]:9095,CONTROLLER://:9093", ("kafka", "::1", "9095")),
        ("PLAINTEXT://node:9092,CONTROLLER://:9093", ("kafka", "node", "9092")),
        ("SECURE://:9094,CONTROLLER://:9093", ("connect", "127.0.0.1", "9094")),
    ],
)
def test_health_check_asks_a_listener_without_encryption(
    directories: Directories, listeners: str, asked: tuple[str, str, str]
) -> None:
    assert target(environment_of(listeners), directories) == asked


def test_health_check_connects_to_a_controllers_listener(directories: Directories) -> None:
    environment = environment_of("CONTROLLER://:9093", KAFKA_PROCESS_ROLES="controller")
    del environment["KAFKA_ADVERTISED_LISTENERS"], environment["KAFKA_INTER_BROKER_LISTENER_NAME"]
    assert target(environment, directories) == ("connect", "127.0.0.1", "9093")


@pytest.mark.parametrize(("address", "host"), [("0.0.0.0:9405", "127.0.0.1"), ("[::]:9405", "::1")])
def test_health_check_asks_the_endpoint_of_probes_if_there_is_one(
    directories: Directories, address: str, host: str
) -> None:
    environment = environment_of("PLAINTEXT://:9092,CONTROLLER://:9093", KAFKA_OTTLA_HEALTH_LISTENER=address)
    assert target(environment, directories) == ("http", host, "9405")


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        ("kafka", b"\0\0\1\0\0\0\0\1...", ""),
        ("kafka", b"HTTP/1.1 400 Bad Request", "no answer of a Kafka broker"),
        ("kafka", b"", "no answer of a Kafka broker"),
        ("http", b"HTTP/1.1 200 OK\r\n\r\nlive\n", ""),
        ("http", b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP/1.1 503"),
        ("connect", b"", ""),
    ],
)
def test_health_check_reads_the_answer(kind: str, answer: bytes, problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                if kind != "connect":
                    assert connection.recv(100)
                connection.sendall(answer)

        (answered,) = in_threads([serve], "server")
        found = container_probe.check(kind, host, port)
        results([answered], "the answer")
    assert found.endswith(problem) if problem else found == ""
    assert container_probe.check(kind, host, port) == f"{host}:{port}: Connection refused"


def test_health_check_imports_neither_settings_nor_clients() -> None:
    """It is a process each ten seconds, and imports would be most of its CPU time."""
    code = (
        "import sys, ottla.launch.container_probe; print(*(each for each in sys.modules if each.startswith('ottla')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["ottla", "ottla.launch", "ottla.launch.container_probe"]


class Became(Exception):
    """The words of the command that replaces this process."""


def test_health_check_of_another_command_uses_the_default_address(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execv(program: str, words: list[str]) -> NoReturn:
        raise Became(*words[1:])

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setenv("OTTLA_CONTAINER_ROOT", str(directories.final.parents[2]))
    with pytest.raises(Became) as became:
        container_probe.main()
    assert became.value.args == ("-m", "ottla", "health", "live")
