"""kafka-share-groups: what a share group does, and its start offsets moved and deleted. KIP-932."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.clients.support import wait_until
from tests.peers import kafka

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]

MEMBER_WAIT_S = 60.0


@pytest.fixture
def shared(tools: Tools, name: str) -> str:
    """A topic with ten records in two partitions, and the settings of a share group of the same name."""
    tools.create_topic(name, partitions=2)
    tools.produce(name, [f"key-{i}\t{i}" for i in range(10)])
    reset = ("--add-config", "share.auto.offset.reset=earliest")
    tools.ok("configs", "--alter", "--entity-type", "groups", "--entity-name", name, *reset)
    return name


@pytest.fixture
def share_member(tools: Tools) -> Iterator[Callable[[str], Callable[[], None]]]:
    """Start a member of the share group of a topic name; returns its end when it has accepted all records."""
    running: list[subprocess.Popen[str]] = []

    def start(name: str) -> Callable[[], None]:
        process = tools.start("console-share-consumer", "--topic", name, "--group", name)
        running.append(process)
        wait_until(lambda: lags(tools, name) == ["0", "0"], f"{name} has accepted all records", MEMBER_WAIT_S)
        return lambda: stop(process)

    def stop(process: subprocess.Popen[str]) -> None:
        kafka.stop_process(process)

    yield start
    for process in running:
        kafka.stop_process(process)
        if process.stdout:
            process.stdout.close()


def offsets(tools: Tools, group: str) -> list[list[str]]:
    """Rows of group, topic, partition, start offset and lag; none while the group does not exist."""
    done = tools.run("share-groups", "--describe", "--group", group)
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    rows = [line for line in lines if line[0] == group and len(line) >= 5]
    return sorted(rows, key=lambda row: row[2])


def lags(tools: Tools, group: str) -> list[str]:
    return [row[4] for row in offsets(tools, group)]


def test_member_is_described_and_protects_its_group(
    tools: Tools, shared: str, share_member: Callable[[str], Callable[[], None]]
) -> None:
    unknown = tools.run("share-groups", "--describe", "--group", shared)
    assert f"Group {shared} not found." in unknown.stdout
    assert "Share group" not in unknown.stdout
    stop = share_member(shared)
    assert shared in tools.ok("share-groups", "--list").split()
    assert [shared, "Stable"] in tools.rows("share-groups", "--list", "--state")
    assert [shared, "Stable"] not in tools.rows("share-groups", "--list", "--state", "empty")
    assert [shared, "Share", "share"] in tools.rows("groups", "--list")
    assert [row[2] for row in offsets(tools, shared)] == ["0", "1"]
    describe = ("--describe", "--group", shared)
    verbose = tools.ok("share-groups", *describe, "--verbose").split()
    assert verbose[:6] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"]
    (member,) = tools.rows("share-groups", *describe, "--members", "--verbose")
    assert (member[0], member[2:5]) == (shared, ["/127.0.0.1", "console-share-consumer", "2"])
    assert member[-1] == f"{shared}:0,1"
    (state,) = tools.rows("share-groups", *describe, "--state", "--verbose")
    assert (state[3], state[-1]) == ("Stable", "1")
    assert state[4] == state[5] == member[5], "the epochs of group, assignment and member"

    reset = ("--reset-offsets", "--group", shared, "--topic", shared, "--to-earliest", "--execute")
    assert "is not empty" in tools.fails("share-groups", *reset)
    assert "is not EMPTY" in tools.run("share-groups", "--delete", "--group", shared).stdout
    forget = tools.run("share-groups", "--delete-offsets", "--group", shared, "--topic", shared)
    assert "The group is not empty." in forget.stdout
    stop()
    wait_until(lambda: "Empty" in tools.ok("share-groups", *describe, "--state"), "the group is empty", MEMBER_WAIT_S)
    assert lags(tools, shared) == ["0", "0"]


def test_offsets_are_reset_and_deleted(tools: Tools, shared: str) -> None:
    """The first reset creates the group."""
    ends = {line.split(":")[1]: line.split(":")[2] for line in tools.ok("get-offsets", "--topic", shared).split()}
    for where, expected in (
        (("--topic", shared, "--to-earliest"), {"0": "0", "1": "0"}),
        (("--all-topics", "--to-latest"), ends),
        (("--topic", shared, "--to-datetime", "2020-01-01T00:00:00.000"), {"0": "0", "1": "0"}),
    ):
        before = offsets(tools, shared)
        reset = ("--reset-offsets", "--group", shared, *where)
        if before:
            tools.ok("share-groups", *reset, "--dry-run")
            assert offsets(tools, shared) == before, "a dry run changed offsets"
        planned = {row[2]: row[3] for row in tools.rows("share-groups", *reset, "--execute")}
        assert planned == expected
        assert {row[2]: row[3] for row in offsets(tools, shared)} == expected
        left = [str(int(ends[row[2]]) - int(row[3])) for row in offsets(tools, shared)]
        assert lags(tools, shared) == left
    forget = ("--delete-offsets", "--group", shared, "--topic", shared)
    assert [shared, "Successful"] in tools.rows("share-groups", *forget)
    assert "There is no offset information to delete." in tools.ok("share-groups", *forget)
    assert offsets(tools, shared) == []
    tools.ok("share-groups", "--reset-offsets", "--group", shared, "--topic", shared, "--to-latest", "--execute")
    deletion = ("--delete", "--group", shared)
    assert f"Deletion of requested share groups ('{shared}') was successful." in tools.ok("share-groups", *deletion)
    assert f"Group '{shared}' is not a share group." in tools.ok("share-groups", *deletion)
    assert shared not in tools.ok("share-groups", "--list").split()
