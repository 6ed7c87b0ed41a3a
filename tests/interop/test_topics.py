"""kafka-topics: the life of a topic, and the messages for wrong arguments."""

from __future__ import annotations

import re

import pytest

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def test_topic_is_created_listed_described_and_deleted(tools: Tools, name: str) -> None:
    assert f"Created topic {name}" in tools.ok("topics", "--create", "--topic", name, "--partitions", 3)
    assert name in tools.ok("topics", "--list").split()

    described = tools.ok("topics", "--describe", "--topic", name).splitlines()
    assert re.search(r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\t", described[0])
    assert [line.split("\t")[2] for line in described[1:4]] == ["Partition: 0", "Partition: 1", "Partition: 2"]
    for line in described[1:4]:
        leader, replicas, in_sync = re.findall(r"(?:Leader|Replicas|Isr): (\d+)", line)
        assert leader == replicas == in_sync

    tools.ok("topics", "--delete", "--topic", name)
    assert name not in tools.ok("topics", "--list").split()
    assert f"Topic '{name}' does not exist" in tools.fails("topics", "--describe", "--topic", name)


def test_configs_given_at_creation_are_described(tools: Tools, name: str) -> None:
    tools.create_topic(name, cleanup_policy="compact", retention_ms=1_000_000)
    heading = tools.ok("topics", "--describe", "--topic", name).splitlines()[0]
    configs = set(heading.partition("Configs: ")[2].split(","))
    assert {"cleanup.policy=compact", "retention.ms=1000000"} <= configs


def test_partitions_are_added_but_never_taken_away(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=2)
    tools.ok("topics", "--alter", "--topic", name, "--partitions", 4)
    assert "PartitionCount: 4" in tools.ok("topics", "--describe", "--topic", name)
    refused = tools.fails("topics", "--alter", "--topic", name, "--partitions", 3)
    assert "InvalidPartitionsException" in refused
    assert "PartitionCount: 4" in tools.ok("topics", "--describe", "--topic", name)


def test_topic_with_explicit_replicas(tools: Tools, name: str, node_id: str) -> None:
    tools.ok("topics", "--create", "--topic", name, "--replica-assignment", f"{node_id},{node_id}")
    assert "PartitionCount: 2" in tools.ok("topics", "--describe", "--topic", name)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--replication-factor", "3"], "InvalidReplicationFactorException"),
        (["--partitions", "0"], "greater than 0"),
        (["--config", "retention.ms=soon"], "Invalid value soon for configuration retention.ms"),
        (["--config", "retention.sm=1"], "Unknown topic config name: retention.sm"),
        (["--config", "cleanup.policy=shred"], "cleanup.policy"),
        (["--replica-assignment", "77"], "InvalidReplicaAssignmentException"),
    ],
)
def test_topic_is_refused_for_a_reason(tools: Tools, name: str, options: list[str], told: str) -> None:
    assert told in tools.fails("topics", "--create", "--topic", name, *options)
    assert name not in tools.ok("topics", "--list").split()


@pytest.mark.parametrize("bad", ["slash/name", "a" * 250, ".."])
def test_bad_topic_name_is_refused(tools: Tools, bad: str) -> None:
    assert "InvalidTopicException" in tools.fails("topics", "--create", "--topic", bad)


def test_name_that_is_taken_is_refused(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    assert "TopicExistsException" in tools.fails("topics", "--create", "--topic", name)
    tools.ok("topics", "--create", "--topic", name, "--if-not-exists")


def test_no_partition_is_in_trouble(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=2)
    for trouble in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert tools.ok("topics", "--describe", "--topic", name, trouble).strip() == ""
