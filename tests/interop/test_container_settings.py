"""The container image and stock Kafka's (`KafkaDockerWrapper`) write the same server.properties."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.launch import container
from ottla.launch.container import Directories
from tests.peers.kafka import java

pytestmark = pytest.mark.jvm
VARIABLES = {
    "KAFKA_NODE_ID": "7",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:19093",
    "KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG": "a b=c;",
    "KAFKA_A__B___C_D": "x=y, z ",
    "KAFKA_A____B": "four",
    "KAFKA_A_____B": "five",
    "KAFKA_A______B": "six",
    "KAFKA_KAFKA_TWICE": "k",
    "KAFKA_EMPTY": "",
    "KAFKA_Lower_case": "l",
    "KAFKA_UMLAUT": "ä",
    "XKAFKA_NOT": "n",
    # They are no settings.
    "KAFKA_HEAP_OPTS": "-Xmx256m",
    "KAFKA_JMX_HOSTNAME": "h",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
    "KAFKA_VERSION": "4.3.0",
    "KAFKA_LOG4J_LOGGERS": "kafka=INFO",
}


@pytest.mark.parametrize("mounted", ["", "node.id=1\nnum.partitions=3"])
def test_variables_become_the_same_settings_as_in_the_stock_image(mounted: str, tmp_path: Path) -> None:
    names = ("defaults", "mounted", "final", "secrets")
    directories = Directories(*(tmp_path / name for name in names))
    for directory in directories:
        directory.mkdir()
    (directories.defaults / "server.properties").write_text("node.id=9\n")
    if mounted:
        (directories.mounted / "server.properties").write_text(mounted)
    environment = {**os.environ, **VARIABLES, "CLUSTER_ID": container.DEFAULT_CLUSTER_ID, "LC_ALL": "C.UTF-8"}
    environment["KAFKA_LOG_DIRS"] = str(tmp_path / "data")
    kinds = {"default": directories.defaults, "mounted": directories.mounted, "final": directories.final}
    options = [f"--{kind}-configs-dir={directory}" for kind, directory in kinds.items()]
    command = java("kafka.docker.KafkaDockerWrapper", "setup", *options, heap="256m")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    written = directories.final / "server.properties"
    assert written.exists(), done.stdout + done.stderr
    ours = container.server_properties(environment, directories)
    assert sorted(ours.split("\n")) == sorted(written.read_text(encoding="utf-8").split("\n"))
    assert mounted in ours
