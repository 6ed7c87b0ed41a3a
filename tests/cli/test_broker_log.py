"""The log of a broker process on standard error: start and stop, topics, settings, groups, bad clients."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients.admin import Admin, ConfigResource, NewTopic
from ottla.clients.consumer import Consumer
from ottla.clients.producer import Producer
from ottla.common import log_lines
from ottla.testing.waiting import wait_until
from tests.ottla_process import ForkedOttla, OttlaProcess

BAD_CLIENTS = 300


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    process = ForkedOttla(tmp_path / "broker", settings)
    process.start()
    yield process
    process.stop()


def messages(process: OttlaProcess) -> list[str]:
    """Return `LEVEL message` for each line."""
    rows = (line.split(maxsplit=4) for line in process.log_path.read_text().splitlines())
    return [f"{row[2]} {row[4]}" for row in rows if len(row) == 5]


def missing(expected: list[str], found: list[str]) -> list[str]:
    """Return the patterns without a matching line; the lines must match in the order of the patterns."""
    rest = iter(found)
    return [pattern for pattern in expected if not any(re.fullmatch(pattern, line) for line in rest)]


def use(bootstrap: str) -> None:
    """Create, configure, write, read in a group, and delete."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("made", 2, config={"retention.ms": "60000"})])
        admin.alter_configs({ConfigResource.broker(1): {"log.cleaner.backoff.ms": "20000"}})
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send("auto", b"value").result(20)
        with Consumer(bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["auto"])
            assert consumer.poll(20)
        admin.delete_topics(["made"])


GROUP = r"\[GroupCoordinator id=1 topic=__consumer_offsets partition=0\]"
STORY = [
    r"INFO \[BrokerServer id=1\] Starting broker\. Ottla version: [\d.]+",
    r"INFO Loading logs from log dirs .*/data",
    r"INFO Loaded 0 logs in \d+ms",
    r"INFO \[BrokerLifecycleManager id=1\] Successfully registered broker 1 with broker epoch \d+",
    r"INFO Awaiting socket connections on 127\.0\.0\.1:\d+ \(PLAINTEXT\)\.",
    r"INFO \[BrokerServer id=1\] Transition from STARTING to STARTED",
    r"INFO \[QuorumController id=1\] Replayed TopicRecord for topic made with topic ID [\w-]{22}\.",
    r"INFO \[Broker id=1\] Transitioning 2 partition\(s\) to local leaders\.",
    r"INFO \[DynamicConfigPublisher broker id=1\] Updating topic made with new configuration : retention\.ms -> 60000",
    r"INFO \[QuorumController id=1\] CreateTopics result\(s\): made: SUCCESS",
    (
        r"INFO \[DynamicConfigPublisher broker id=1\] Updating node 1 with new configuration : "
        r"log\.cleaner\.backoff\.ms -> 20000"
    ),
    r"INFO Sent auto-creation request for auto to the active controller",
    r"INFO Created log for partition auto-0 in .*/data/auto-0 with properties \{\}",
    r"INFO \[GroupCoordinator id=1\] Scheduling loading of metadata from __consumer_offsets-0 with epoch 0",
    r"INFO \[GroupCoordinator id=1\] Finished loading of metadata from __consumer_offsets-0 with epoch 0 in \d+ms .*",
    rf"INFO {GROUP} Stabilized group g generation 1 with 1 members\.",
    rf"INFO {GROUP} Group g with generation 2 is now empty\.",
    r"INFO \[Broker id=1\] Deleting 2 partition\(s\)\.",
    r"INFO Log for partition made-\d is renamed to .*-delete and is scheduled for deletion",
    r"INFO \[QuorumController id=1\] DeleteTopics result\(s\): made: SUCCESS",
    r"INFO Stopping: SIGTERM",
    r"INFO \[BrokerServer id=1\] Transition from STARTED to SHUTTING_DOWN",
    r"INFO Shutdown complete\.",
    r"INFO \[BrokerServer id=1\] shut down completed",
]


def test_log_has_the_lines_of_kafka_in_order(process: OttlaProcess) -> None:
    use(process.bootstrap)
    assert process.stop() == 0
    found = messages(process)
    assert missing(STORY, found) == [], "\n".join(found)
    assert not [line for line in found if not line.startswith("INFO")]


def test_bad_clients_are_logged_with_a_limited_rate(process: OttlaProcess) -> None:
    host, port = process.bootstrap.rsplit(":", 1)
    for size in (1 << 30, -5, *[1 << 30] * BAD_CLIENTS):
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(struct.pack(">i", size))
            assert client.recv(1) == b""
    process.stop()
    bad = [line for line in messages(process) if "Closing socket" in line]
    address = r"WARN Closing socket for 127\.0\.0\.1:\d+ because of error: "
    assert re.fullmatch(address + r"Invalid receive \(size = 1073741824 larger than 104857600\)", bad[0])
    assert re.fullmatch(address + r"Invalid receive \(size = -5\)", bad[1])
    assert len(bad) < BAD_CLIENTS


def test_long_names_of_clients_are_cut_in_the_log(process: OttlaProcess) -> None:
    name = "g" * 30_000
    with Consumer(bootstrap_servers=process.bootstrap, group_id=name) as consumer:
        consumer.subscribe(["auto"])
        wait_until(lambda: consumer.poll(0.2) or consumer.assignment(), 30)
    process.stop()
    longest = max(process.log_path.read_text().splitlines(), key=len)
    assert "characters omitted" in longest
    assert len(longest) < log_lines.LONGEST_MESSAGE + 200
