"""`ottla check` on one broker without replicas, and on the facts of a good and of a bad cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients import admin as api
from ottla.clients.admin.model import LogDirectory, QuorumReplica
from ottla.tools.readiness import Facts, checks
from ottla.tools.why.cluster_samples import ClusterSample
from tests.clients.support import unique

from .conftest import Run


@pytest.mark.both
def test_single_broker_is_not_ready(ottla: Run, ours: Admin) -> None:
    name = unique("thin")
    ours.create_topic(name, partitions=1, replication_factor=1, config={"unclean.leader.election.enable": "true"})
    try:
        done = ottla("check", "--json")
        people = ottla("check")
    finally:
        ours.delete_topic(name)
    assert (done.code, people.code) == (1, 1)
    (report,) = done.objects
    rows: dict[str, list[dict[str, Any]]] = {}
    for each in report["checks"]:
        rows.setdefault(each["code"], []).append(each)
    assert (report["severity"], report["unknown"]) == ("critical", {})
    assert {each["severity"] for each in rows["brokers"]} == {"critical"}
    assert name in rows["unclean_election"][0]["subject"] or "more" in rows["unclean_election"][0]["subject"]
    assert rows["replication_factor"][0]["severity"] == "critical"
    assert {"no authorizer" in each["cause"] for each in rows["security"]} == {True}
    assert rows["auto_create"][0]["severity"] in ("warning", "ok")
    assert rows["clocks"][0]["severity"] == "ok"
    assert rows["disks"][0]["subject"] in ("the cluster", "broker 1")
    assert "critical" in people.out.splitlines()[-1]


def good() -> Facts:
    """A cluster that passes each check that the protocol can show."""
    brokers = tuple(api.BrokerDescription(node, "h", 9092, f"r{node}", is_fenced=False) for node in (1, 2, 3))
    partition = api.PartitionDescription(0, 1, 1, (1, 2, 3), (1, 2, 3), ())
    names = {"orders": False, "__consumer_offsets": True, "__transaction_state": True, "__share_group_state": True}
    topics = {name: api.TopicDescription(name, "", internal, (partition,)) for name, internal in names.items()}
    voters = tuple(QuorumReplica(node, 10, 1_000_000, 1_000_000) for node in (1, 2, 3))
    directories = {node: (LogDirectory("/data", 100, 50, {}),) for node in (1, 2, 3)}
    seen = ClusterSample(
        1_000_000,
        api.ClusterDescription("id", 1, brokers),
        topics,
        {},
        api.Quorum(1, 1, 10, voters, ()),
        directories,
    )
    broker = {
        "auto.create.topics.enable": "false",
        "offsets.retention.minutes": "10080",
        "authorizer.class.name": "Standard",
        "listeners": "CLIENT://0.0.0.0:9092,LOCAL://127.0.0.1:9093,CONTROLLER://:9094",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
    topic = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false", "retention.ms": "604800000"}
    return Facts(1_000_010, seen, dict.fromkeys(topics, topic), dict.fromkeys(("1", "2", "3"), broker))


def failed(facts: Facts) -> dict[str, str]:
    return {each.code: each.severity for each in checks(facts) if each.severity != "ok"}


def of_topic(**settings: str) -> Facts:
    facts, given = good(), {name.replace("_", "."): value for name, value in settings.items()}
    return replace(facts, topics={name: {**rows, **given} for name, rows in facts.topics.items()})


def of_broker(**settings: str) -> Facts:
    facts, given = good(), {name.replace("_", "."): value for name, value in settings.items()}
    return replace(facts, brokers={name: {**rows, **given} for name, rows in facts.brokers.items()})


def of_sample(**changes: Any) -> Facts:
    facts = good()
    return replace(facts, sample=replace(facts.sample, **changes))


UNSEEN = {"file_descriptors": "info"}


def test_good_cluster_passes() -> None:
    assert failed(good()) == UNSEEN
    assert len({each.code for each in checks(good())}) == 13


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        (of_topic(min_insync_replicas="1"), "min_isr", "critical"),
        (of_topic(min_insync_replicas="3"), "min_isr", "warning"),
        (of_topic(unclean_leader_election_enable="true"), "unclean_election", "critical"),
        (of_topic(retention_ms="-1"), "offsets_retention", "info"),
        (of_topic(retention_ms="604800001"), "offsets_retention", "info"),
        (of_broker(offsets_retention_minutes="1440"), "offsets_retention", "info"),
        (of_broker(auto_create_topics_enable="true"), "auto_create", "warning"),
        (of_broker(authorizer_class_name=""), "security", "critical"),
        (of_broker(listener_security_protocol_map="CLIENT:SASL_PLAINTEXT,LOCAL:PLAINTEXT"), "security", "critical"),
        (of_broker(listeners="PLAINTEXT://:9092"), "security", "critical"),
        (replace(good(), now_ms=1_003_000, sample=replace(good().sample, at_ms=1_002_000)), "clocks", "warning"),
        (replace(good(), now_ms=1_099_000, sample=replace(good().sample, at_ms=1_098_000)), "clocks", "critical"),
        (of_sample(quorum=None), "clocks", "info"),
        (of_sample(directories={1: (LogDirectory("/data", 100, 4, {}),)}), "disks", "critical"),
        (of_sample(directories={1: (LogDirectory("/data", -1, -1, {}),)}), "disks", "info"),
    ],
)
def test_each_fault_is_named_with_a_repair(facts: Facts, code: str, severity: str) -> None:
    assert failed(facts) == {**UNSEEN, code: severity}
    assert all(each.next_step for each in checks(facts) if each.severity != "ok")


def test_replicas_in_one_rack_are_named() -> None:
    one = tuple(api.BrokerDescription(node, "h", 9092, "r", is_fenced=False) for node in (1, 2, 3))
    assert failed(of_sample(cluster=api.ClusterDescription("id", 1, one)))["racks"] == "warning"
    two = tuple(
        api.BrokerDescription(node, "h", 9092, "a" if node < 4 else "b", is_fenced=False) for node in (1, 2, 3, 4)
    )
    assert failed(of_sample(cluster=api.ClusterDescription("id", 1, two))) == {**UNSEEN, "racks": "warning"}


def test_internal_topics_that_do_not_exist_are_judged_by_their_settings() -> None:
    facts = of_broker(offsets_topic_replication_factor="1")
    topics = {name: each for name, each in facts.sample.topics.items() if name != "__consumer_offsets"}
    found = failed(replace(facts, sample=replace(facts.sample, topics=topics)))
    assert found == {**UNSEEN, "internal_topics": "warning"}
