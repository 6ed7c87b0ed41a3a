"""Java's share consumers: the console consumer and the consumer of Kafka's system tests. KIP-932."""

from __future__ import annotations

import json

import pytest

from tests.peers import kafka

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]
WAIT_S = 60.0
COUNT = 600


def from_the_start(tools: Tools, group: str, **settings: object) -> None:
    """Configure a share group; names with _ for the dots."""
    given = {"share_auto_offset_reset": "earliest", **settings}
    text = ",".join(f"{name.replace('_', '.')}={value}" for name, value in given.items())
    tools.ok("configs", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", text)


def read(tools: Tools, name: str, count: int, *options: object) -> list[str]:
    """Read `count` records with the console consumer: the delivery count and the value of each."""
    wanted = ("--topic", name, "--group", name, "--max-messages", count, "--formatter-property=print.delivery=true")
    return tools.ok("console-share-consumer", *wanted, *options).splitlines()


def test_console_share_consumer_releases_rejects_and_accepts(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, [f"k\t{i}" for i in range(5)])
    from_the_start(tools, name)
    assert read(tools, name, 2, "--release") == ["Delivery:1\t0", "Delivery:1\t1"]
    assert read(tools, name, 2, "--reject") == ["Delivery:2\t0", "Delivery:2\t1"]
    accepted = read(tools, name, 2)
    assert [line.split("\t")[1] for line in accepted] == ["2", "3"]
    (last,) = read(tools, name, 1)
    assert last.endswith("\t4"), "neither rejected nor accepted records are delivered again"


def test_verifiable_share_consumer_acknowledges_all_records_once(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=3)
    tools.produce(name, [f"{i}\t{i}" for i in range(COUNT)])
    process = tools.start(
        "verifiable-share-consumer", "--topic", name, "--group-id", name, "--max-messages", COUNT, "--verbose",
        "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest",
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=WAIT_S)
    finally:
        kafka.stop_process(process)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    values = sorted(int(event["value"]) for event in events if event["name"] == "record_data")
    assert values == list(range(COUNT))
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == COUNT
