"""Kafka's own system-test clients and measuring tools: they check themselves what they send and get."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.peers import kafka

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]
WAIT_S = 60.0


def events(process: subprocess.Popen[str]) -> list[dict[str, object]]:
    """Return the output of a verifiable client after its end, one JSON object a line."""
    try:
        output, _ = process.communicate(timeout=WAIT_S)
    finally:
        kafka.stop_process(process)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_verifiable_consumer_gets_what_verifiable_producer_sent(tools: Tools, name: str) -> None:
    count = 2000
    tools.create_topic(name, partitions=3)
    sent = events(
        tools.start(
            "verifiable-producer", "--topic", name, "--max-messages", count, "--acks", "-1", "--throughput", "-1"
        )
    )
    assert [e for e in sent if e["name"] == "producer_send_error"] == []
    assert sum(e["name"] == "producer_send_success" for e in sent) == count

    # Its group protocol is the classic one by default.
    received = events(
        tools.start("verifiable-consumer", "--topic", name, "--group-id", name, "--reset-policy", "earliest",
                    "--max-messages", count, "--verbose")
    )  # fmt: skip
    values = sorted(int(str(e["value"])) for e in received if e["name"] == "record_data")
    assert values == list(range(count))
    commits = [e for e in received if e["name"] == "offsets_committed"]
    assert commits
    assert all(e["success"] for e in commits)


def test_message_copier_copies_each_record_once(tools: Tools, name: str) -> None:
    source, target = tools.create_topic(f"{name}.source"), tools.create_topic(f"{name}.target")
    lines = [f"k{number}\t{number}" for number in range(200)]
    tools.produce(source, lines)
    told = events(
        kafka.start_tool(
            "transactional-message-copier", "--broker-list", tools.bootstrap, "--input-topic", source,
            "--input-partition", 0, "--output-topic", target, "--transactional-id", name, "--consumer-group", name,
            "--transaction-size", 10, "--enable-random-aborts", "--group-mode", "--use-group-metadata",
        )
    )  # fmt: skip
    assert told[-1]["remaining"] == 0
    assert tools.consume(target, len(lines), "--isolation-level", "read_committed") == lines
    (offset,) = (row[3] for row in tools.rows("consumer-groups", "--describe", "--group", name) if source in row)
    assert int(offset) == len(lines)


def test_client_compatibility(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    supported = {
        "offsets-for-times-supported": True, "cluster-id-supported": True, "num-cluster-nodes": 1,
        # KIP-74: a record larger than what a fetch asks for is returned alone.
        "expect-record-too-large-exception": False, "create-topics-supported": True, "describe-configs-supported": True,
        "idempotent-producer-supported": True,
        # The client accepts SECURITY_DISABLED, the answer of a broker without an authorizer.
        "describe-acls-supported": True,
    }  # fmt: skip
    options = [word for key, value in supported.items() for word in (f"--{key}", str(value).lower())]
    assert "SUCCESS" in tools.ok("client-compatibility", "--topic", name, *options)


def test_producer_and_consumer_performance(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=2)
    load = ("--num-records", 5000, "--record-size", 200, "--throughput", -1)
    assert "5000 records sent" in tools.ok("producer-perf-test", "--topic", name, *load)
    row = tools.ok("consumer-perf-test", "--topic", name, "--num-records", 5000).splitlines()[-1].split(", ")
    assert int(row[4]) == 5000


def test_end_to_end_latency_of_single_records(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    measured = tools.ok(
        "e2e-latency", "--topic", name, "--num-records", 50, "--producer-acks", "all", "--record-size", 100
    )
    assert "Avg latency" in measured
