"""Eligible leader replicas (KIP-966) are shown by Ottla and by stock Kafka's tool, and elected without an ISR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import NewTopic
from tests.clients.support import wait_until
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import tool

from .processes import Cluster

TOPIC = "t"
WAIT_S = 30.0


class Shown(NamedTuple):
    leader: int | None
    isr: list[int]
    eligible: list[int]
    last_leader: list[int]


def shown_by_ottla(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Shown:
    capsys.readouterr()
    assert main(["topic", "describe", TOPIC, "--json", "-b", bootstrap]) == 0
    [row] = json.loads(capsys.readouterr().out)["partitions"]
    return Shown(row["leader"], row["isr"], sorted(row["eligible"]), row["last_known_leader"])


def shown_by_kafka(bootstrap: str) -> Shown:
    """Parse a line of `kafka-topics --describe`: Leader: 1 ... Isr: 1 Elr: 2,3 LastKnownElr: 1."""
    done = tool("topics", "--bootstrap-server", bootstrap, "--describe", "--topic", TOPIC)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()[1].strip().split("\t")
    fields = {name.strip(): value.strip() for name, _, value in (word.partition(":") for word in words)}

    def nodes(name: str) -> list[int]:
        return [int(node) for node in fields[name].split(",") if node]

    leader = None if fields["Leader"] == "none" else int(fields["Leader"])
    return Shown(leader, nodes("Isr"), sorted(nodes("Elr")), nodes("LastKnownElr"))


@pytest.mark.jvm
def test_eligible_replicas_are_shown_and_elected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if missing := missing_for_jvm():
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with Cluster(tmp_path, controllers=1, properties={"min.insync.replicas": 2}) as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, assignments={0: [1, 2]})])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send(TOPIC, b"acknowledged").result(WAIT_S)
        bootstrap = cluster.nodes[3].bootstrap
        with Admin(bootstrap_servers=bootstrap) as admin:
            until(admin, Shown(1, [1, 2], [], []))
            cluster.kill(2)
            until(admin, Shown(1, [1], [2], []))
            assert cluster.stop_node(1) == 0
            until(admin, Shown(None, [], [1, 2], [1]))
            expected = shown(admin)
            assert shown_by_ottla(bootstrap, capsys) == expected
            assert shown_by_kafka(bootstrap) == expected
            # Broker 2 may have lost what it had not written to disk, so that only broker 1 may lead.
            cluster.start_node(2)
            until(admin, Shown(None, [], [1], [1]))
            cluster.start_node(1)
            until(admin, Shown(1, [1, 2], [], []))
        with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, 0)])
            assert [record.value for record in consumer.poll(WAIT_S)] == [b"acknowledged"]
        cluster.assert_no_traceback()


def shown(admin: Admin) -> Shown:
    [found] = admin.describe_topic(TOPIC).partitions
    return Shown(found.leader, sorted(found.isr), sorted(found.eligible_leader_replicas), list(found.last_known_elr))


def until(admin: Admin, expected: Shown) -> None:
    wait_until(lambda: shown(admin) == expected, f"the topic is described as {expected}", WAIT_S)
