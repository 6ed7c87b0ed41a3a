"""The tools that ask for the cluster itself: APIs, features, quorum, disks, leaders, reassignments, producers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]

# The APIs that a newest Java client must be able to use in full: its own newest version of each.
FULLY_USABLE = {
    "Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10, "OffsetFetch": 10,
    "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5, "DescribeGroups": 6,
    "ListGroups": 5, "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2, "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "AlterConfigs": 2, "DescribeLogDirs": 5, "CreatePartitions": 3,
    "DeleteGroups": 2, "ElectLeaders": 2, "IncrementalAlterConfigs": 1, "AlterPartitionReassignments": 1,
    "ListPartitionReassignments": 0, "OffsetDelete": 0, "DescribeQuorum": 2, "UpdateFeatures": 2, "DescribeCluster": 2,
    "DescribeProducers": 0, "DescribeTopicPartitions": 0,
}  # fmt: skip


def test_newest_client_finds_newest_versions(tools: Tools) -> None:
    listing = tools.ok("broker-api-versions")
    usable = dict(re.findall(r"\t(\w+)\(\d+\): .*\[usable: (\d+)\]", listing))
    assert {name: min(int(usable.get(name, -1)), newest) for name, newest in FULLY_USABLE.items()} == FULLY_USABLE


def test_features_say_which_kafka_this_is(tools: Tools) -> None:
    finalized = dict(re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", tools.ok("features", "describe")))
    assert finalized["metadata.version"].startswith("4.")


def test_unknown_feature_is_refused(tools: Tools) -> None:
    refused = tools.fails("features", "upgrade", "--feature", "nonsense=1")
    assert "does not support this feature" in refused or "nonsense" in refused


def test_quorum_is_one_voter_that_leads(tools: Tools, node_id: str) -> None:
    status = dict(re.findall(r"^(\w+): +(.*)$", tools.ok("metadata-quorum", "describe", "--status"), re.MULTILINE))
    assert status["LeaderId"] == node_id
    assert int(status["LeaderEpoch"]) >= 1
    assert int(status["HighWatermark"]) > 0
    assert f'"id": {node_id}' in status["CurrentVoters"]
    (replica,) = tools.rows("metadata-quorum", "describe", "--replication")
    assert replica[0] == node_id
    assert replica[-1] == "Leader"


def test_cluster_has_one_id_and_one_broker(tools: Tools, node_id: str) -> None:
    cluster_id = tools.ok("cluster", "cluster-id").strip()
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", cluster_id)
    assert cluster_id.removeprefix("Cluster ID: ") in tools.ok("metadata-quorum", "describe", "--status")
    (endpoint,) = tools.rows("cluster", "list-endpoints")
    host, port = tools.bootstrap.split(":")
    assert endpoint[:3] == [node_id, host, port]
    assert endpoint[-1] == "broker"


def test_log_dirs_show_each_partitions_size(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=2)
    tools.produce(name, [f"key-{i}\t{i}" for i in range(20)])
    listing = json.loads(tools.ok("log-dirs", "--describe", "--topic-list", name).splitlines()[-1])
    (directory,) = listing["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert {p["partition"] for p in directory["partitions"]} == {f"{name}-0", f"{name}-1"}
    assert sum(p["size"] for p in directory["partitions"]) > 100
    assert all(p["offsetLag"] == 0 and not p["isFuture"] for p in directory["partitions"])


def test_leader_is_already_the_preferred_one(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    one = ("--topic", name, "--partition", "0")
    assert "already elected" in tools.ok("leader-election", "--election-type", "preferred", *one)
    assert "already elected" in tools.ok("leader-election", "--election-type", "unclean", *one)


def test_election_for_an_unknown_topic_fails(tools: Tools, name: str) -> None:
    one = ("--topic", name, "--partition", "0")
    assert "UnknownTopicOrPartition" in tools.fails("leader-election", "--election-type", "preferred", *one)


def test_reassignment_to_where_it_is_ends_at_once(tools: Tools, name: str, node_id: str, tmp_path: Path) -> None:
    tools.create_topic(name)
    plan = tmp_path / "plan.json"
    partition = {"topic": name, "partition": 0, "replicas": [int(node_id)], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    assert "No partition reassignments found" in tools.ok("reassign-partitions", "--list")
    assert "Successfully started" in tools.ok("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    done = tools.ok("reassign-partitions", "--verify", "--preserve-throttles", "--reassignment-json-file", plan)
    assert f"Reassignment of partition {name}-0 is completed" in done


def test_reassignment_to_an_unknown_broker_is_refused(tools: Tools, name: str, tmp_path: Path) -> None:
    tools.create_topic(name)
    plan = tmp_path / "plan.json"
    partition = {"topic": name, "partition": 0, "replicas": [77], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    refused = tools.fails("reassign-partitions", "--execute", "--reassignment-json-file", plan)
    assert "77" in refused


def test_idempotent_producer_is_described(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, ["k\tv"])
    ((producer_id, epoch, _, last_sequence, last_timestamp, transaction_start),) = tools.rows(
        "transactions", "describe-producers", "--topic", name, "--partition", 0
    )
    assert int(producer_id) >= 0
    assert (epoch, last_sequence, transaction_start) == ("0", "0", "None")
    assert int(last_timestamp) > 0


def test_access_rules_need_an_authorizer(tools: Tools) -> None:
    rule = ("--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    for words in (("--list",), ("--add", *rule), ("--remove", "--force", *rule)):
        assert "SecurityDisabledException: No Authorizer is configured" in tools.fails("acls", *words)
