"""kafka-consumer-groups: what a group does, and its offsets moved and deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.support import wait_until
from tests.peers import kafka

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


@pytest.fixture
def finished_group(tools: Tools, name: str) -> str:
    """A topic with ten records in two partitions, all of them read and committed by a group of the same name."""
    tools.create_topic(name, partitions=2)
    tools.produce(name, [f"key-{i}\t{i}" for i in range(10)])
    assert len(tools.consume(name, 10, "--group", name)) == 10
    return name


def committed(tools: Tools, group: str) -> dict[str, str]:
    """Partition -> committed offset, '-' for none."""
    rows = tools.rows("consumer-groups", "--describe", "--group", group)
    return {row[2]: row[3] for row in rows}


def end_offsets(tools: Tools, topic: str) -> dict[str, str]:
    lines = tools.ok("get-offsets", "--topic", topic).split()
    return {line.split(":")[1]: line.split(":")[2] for line in lines}


def test_group_is_listed_with_state_and_type(tools: Tools, finished_group: str) -> None:
    assert finished_group in tools.ok("consumer-groups", "--list").split()
    assert [finished_group, "Empty"] in tools.rows("consumer-groups", "--list", "--state")
    assert [finished_group, "Empty"] in tools.rows("consumer-groups", "--list", "--state", "empty")
    assert [finished_group, "Empty"] not in tools.rows("consumer-groups", "--list", "--state", "stable")
    assert [finished_group, "Classic"] in tools.rows("consumer-groups", "--list", "--type")
    assert [finished_group, "Classic", "consumer"] in tools.rows("groups", "--list")


def test_lag_is_what_was_not_committed(tools: Tools, finished_group: str) -> None:
    tools.produce(finished_group, [f"late-{i}\t{i}" for i in range(6)])
    rows = tools.rows("consumer-groups", "--describe", "--group", finished_group)
    assert sum(int(row[3]) for row in rows) == 10
    assert sum(int(row[4]) for row in rows) == 16
    assert sum(int(row[5]) for row in rows) == 6


def test_running_member_is_described_and_protected(
    tools: Tools, name: str, group_member: Callable[[str, str], None]
) -> None:
    tools.create_topic(name, partitions=3)
    tools.produce(name, ["k\tv"])
    group_member(name, name)

    (member,) = tools.rows("consumer-groups", "--describe", "--group", name, "--members", "--verbose")
    assert member[0] == name
    assert member[1].startswith("console-consumer-")
    assert member[2:5] == ["/127.0.0.1", "console-consumer", "3"]
    assert f"{name}:0,1,2" in member
    (state,) = tools.rows("consumer-groups", "--describe", "--group", name, "--state")
    assert state[0] == name
    assert state[-3:] == ["range", "Stable", "1"]

    reset = tools.run(
        "consumer-groups", "--reset-offsets", "--group", name, "--topic", name, "--to-latest", "--execute"
    )
    assert "current state is Stable" in reset.stdout + reset.stderr
    deletion = tools.run("consumer-groups", "--delete", "--group", name)
    assert "GroupNotEmptyException" in deletion.stdout + deletion.stderr
    offsets = tools.run("consumer-groups", "--delete-offsets", "--group", name, "--topic", name)
    assert "GroupSubscribedToTopicException" in offsets.stdout + offsets.stderr


def test_unknown_group_is_an_error(tools: Tools, name: str) -> None:
    done = tools.run("consumer-groups", "--describe", "--group", name)
    assert "GroupIdNotFoundException" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-offset", "3"], None),
        (["--shift-by", "-2"], None),
        (["--by-duration", "PT1H"], 0),
        (["--to-datetime", "2020-01-01T00:00:00.000"], 0),
        (["--to-latest"], 10),
    ],
)
def test_offsets_are_reset(tools: Tools, finished_group: str, where: list[str], expected: int | None) -> None:
    ends = end_offsets(tools, finished_group)
    reset = ("--reset-offsets", "--group", finished_group, "--topic", finished_group, *where)
    planned = {row[2]: row[3] for row in tools.rows("consumer-groups", *reset, "--dry-run")}
    assert committed(tools, finished_group) == ends, "a dry run changed offsets"

    tools.ok("consumer-groups", *reset, "--execute")
    assert committed(tools, finished_group) == planned
    if expected is not None:
        assert sum(int(offset) for offset in planned.values()) == expected
    left = 10 - sum(int(offset) for offset in planned.values())
    if left:
        assert len(tools.consume(finished_group, left, "--group", finished_group)) == left


def test_reset_of_a_group_that_never_was_creates_it(tools: Tools, finished_group: str) -> None:
    group = finished_group + "-new"
    reset = ("--reset-offsets", "--group", group, "--topic", finished_group, "--to-latest", "--execute")
    tools.ok("consumer-groups", *reset)
    assert committed(tools, group) == end_offsets(tools, finished_group)


def test_offsets_of_a_topic_are_deleted(tools: Tools, finished_group: str) -> None:
    deletion = tools.ok("consumer-groups", "--delete-offsets", "--group", finished_group, "--topic", finished_group)
    assert deletion.count("Successful") == 2
    assert all(offset == "-" for offset in committed(tools, finished_group).values())


def test_empty_group_is_deleted_once(tools: Tools, finished_group: str) -> None:
    deletion = ("consumer-groups", "--delete", "--group", finished_group)
    assert "was successful" in tools.ok(*deletion)
    assert finished_group not in tools.ok("consumer-groups", "--list").split()
    again = tools.run(*deletion)
    assert "GroupIdNotFoundException" in again.stdout + again.stderr


def test_group_of_the_consumer_protocol_is_described_like_stock_kafka(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=3)
    tools.produce(name, ["k\tv"])
    options = ("--from-beginning", "--command-property", "group.protocol=consumer")
    running = tools.start("console-consumer", "--topic", name, "--group", name, *options)
    try:
        wait_until(
            lambda: "Stable" in tools.run("consumer-groups", "--describe", "--group", name, "--state").stdout,
            f"group {name} is stable",
            60,
        )
        (state,) = tools.rows("consumer-groups", "--describe", "--group", name, "--state", "--verbose")
        assert {"uniform", "Stable", "1"} <= set(state)
        (member,) = tools.rows("consumer-groups", "--describe", "--group", name, "--members", "--verbose")
        assert f"{name}:0,1,2" in member
        assert [name, "Consumer", "consumer"] in tools.rows("groups", "--list")
    finally:
        kafka.stop_process(running)
        if running.stdout is not None:
            running.stdout.close()
