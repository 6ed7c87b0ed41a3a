"""The metadata log is KRaft's: stock tools read ours, we read stock Kafka's."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm
from tests.unit.broker.metadata_support import create, open_shell, register

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]
LOG = "__cluster_metadata-0"
SHELL_IS_READY = "Kafka Metadata Shell"
SHELL_STARTS, SHELL_DEADLINE_S = 3, 20


@pytest.fixture(autouse=True)
def jvm() -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


def metadata_shell(snapshot: Path, *commands: str) -> str:
    """Return the output of the stock shell, which is started again if it waits for its own reader for ever."""
    for _ in range(SHELL_STARTS):
        shown = _metadata_shell(snapshot, commands)
        if SHELL_IS_READY in shown:
            return shown
    pytest.fail(f"kafka-metadata-shell was not ready within {SHELL_STARTS} x {SHELL_DEADLINE_S} s: {shown}")


def _metadata_shell(snapshot: Path, commands: tuple[str, ...]) -> str:
    """It takes commands once it has read the file, and knows what it read a bit later."""
    command = kafka.java(kafka.TOOLS["metadata-shell"], "--snapshot", str(snapshot), heap="256m")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = threading.Timer(SHELL_DEADLINE_S, process.kill)
        deadline.start()
        try:
            shown = ""
            while SHELL_IS_READY not in shown and (line := process.stdout.readline()):
                shown += line
            if SHELL_IS_READY not in shown:
                return shown
            time.sleep(1.0)
            return shown + process.communicate("\n".join((*commands, "")), timeout=SHELL_DEADLINE_S)[0]
        finally:
            deadline.cancel()
            process.kill()


def test_stock_tools_read_our_log_and_our_snapshot(tmp_path: Path) -> None:
    shell = open_shell(str(tmp_path))
    register(shell)
    create(shell, "numbers", 3)
    shell.begin_snapshot()
    for _ in range(5):
        shell.tick()
    create(shell, "later")
    shell.close()
    [checkpoint] = (tmp_path / LOG).glob("*.checkpoint")
    for path in (tmp_path / LOG / "00000000000000000000.log", checkpoint, tmp_path / "bootstrap.checkpoint"):
        done = kafka.tool("dump-log", "--cluster-metadata-decoder", "--files", path)
        assert done.returncode == 0, done.stderr
        assert "isvalid: false" not in done.stdout
        assert '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version"' in done.stdout
        assert ('"name":"numbers"' in done.stdout) == (path.name != "bootstrap.checkpoint")
    shown = metadata_shell(checkpoint, "ls /image/topics/byName", "cat /image/cluster/brokers/1", "exit")
    assert "numbers" in shown
    assert "BrokerRegistration(id=1" in shown


def test_metadata_that_stock_kafka_wrote_is_ours(tmp_path: Path) -> None:
    stock = kafka.StockKafka(tmp_path)
    with stock:
        made = kafka.tool(
            "topics", "--bootstrap-server", stock.bootstrap, "--create", "--topic", "theirs", "--partitions", 4,
            "--config", "retention.ms=12345", "--config", "min.insync.replicas=1",
        )  # fmt: skip
        assert made.returncode == 0, made.stdout
        directory = stock.data()
    shell = open_shell(str(directory), cluster_id=stock.cluster_id)
    shell.image.validate()
    topic = shell.image.topics_by_name["theirs"]
    assert len(topic.partitions) == 4
    assert shell.image.config(2, "theirs") == {"min.insync.replicas": "1", "retention.ms": "12345"}
    assert shell.image.features["metadata.version"] == 30
    levels = dict(shell.image.features)
    assert {"group.version", "transaction.version", "share.version", "eligible.leader.replicas.version"} <= set(levels)
    register(shell, cluster_id=stock.cluster_id)
    assert shell.image.features == levels, "levels that are not served are kept"
    assert all(partition.leader == 1 for partition in shell.image.topics_by_name["theirs"].partitions.values())
    create(shell, "ours")
    shell.close()
    with stock:
        listed = kafka.tool("topics", "--bootstrap-server", stock.bootstrap, "--list").stdout.split()
    assert {"theirs", "ours"} <= set(listed), "and stock Kafka reads on where we wrote"
