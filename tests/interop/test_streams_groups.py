"""Kafka Streams with `group.protocol=streams`, and kafka-streams-groups: a word count on two instances. KIP-1071."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.support import wait_until
from tests.peers import kafka
from tests.peers.cache import STREAMS, in_ci, missing_for_streams

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]

WAIT_S = 40.0
LINES = 40
Start = Callable[[str], "subprocess.Popen[str]"]


class Application:
    """A word count: two input partitions, a repartition topic and a changelog."""

    def __init__(self, tools: Tools, name: str, directory: Path) -> None:
        self.tools, self.name, self.directory = tools, name, directory
        self.source, self.sink = f"{name}-in", f"{name}-out"
        tools.create_topic(self.source, partitions=2)
        tools.create_topic(self.sink)
        self.instances: list[subprocess.Popen[str]] = []
        self.counts: dict[str, int] = {}

    def start(self) -> subprocess.Popen[str]:
        """Start an instance, in a process of its own."""
        arguments = (self.tools.bootstrap, self.name, str(self.directory / f"state-{len(self.instances)}"))
        settings = ("session.timeout.ms=5000", "num.stream.threads=1")
        with (self.directory / f"instance-{len(self.instances)}.log").open("w") as log:
            options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
            command = ["java", *options, "-cp", f"{STREAMS}/*", "WordCount", *arguments, self.source, self.sink]
            process = subprocess.Popen(
                [*command, *settings], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True
            )
        self.instances.append(process)
        return process

    def count(self, prefix: str) -> None:
        """Send lines of four words, and wait until the output has the count of each word."""
        lines = [f"{prefix}{i}\t{prefix}a {prefix}b {prefix}c {prefix}{i % 5}" for i in range(LINES)]
        self.tools.produce(self.source, lines)
        for line in lines:
            for word in line.partition("\t")[2].split():
                self.counts[word] = self.counts.get(word, 0) + 1
        wait_until(lambda: self.output() == self.counts, f"the counts of {self.name}", WAIT_S)

    def output(self) -> dict[str, int]:
        """The newest count of each word; each count must follow the previous one."""
        options = ("--from-beginning", "--timeout-ms", 2_000, "--formatter-property=print.key=true")
        done = self.tools.run("console-consumer", "--topic", self.sink, *options)
        found: dict[str, int] = {}
        for line in done.stdout.splitlines():
            word, _, count = line.partition("\t")
            found[word] = int(count)
        return found

    def members(self) -> list[list[str]]:
        """The rows of members, with the tasks of each."""
        done = self.tools.run("streams-groups", "--describe", "--group", self.name, "--members", "--verbose")
        rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
        return [row for row in rows if row[0] == self.name and len(row) > 7]

    def state(self) -> str:
        """The state that kafka-streams-groups lists."""
        rows = {row[0]: row[1] for row in self.tools.rows("streams-groups", "--list", "--state") if len(row) == 2}
        return rows.get(self.name, "none")


@pytest.fixture
def application(tools: Tools, name: str, tmp_path: Path) -> Iterator[Application]:
    missing = missing_for_streams()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    found = Application(tools, name[-40:], tmp_path)
    yield found
    for process in found.instances:
        if process.stdin is not None:
            process.stdin.close()
        kafka.stop_process(process)


def active(rows: list[list[str]]) -> list[str]:
    """The active tasks of all members, e.g. `0:[0]`."""
    text = " ".join(word for row in rows for word in " ".join(row).partition("ACTIVE: ")[2].split("TARGET")[0].split())
    return sorted(text.replace(";", "").split())


def test_two_instances_share_the_tasks_and_one_takes_over(application: Application) -> None:
    first = application.start()
    application.start()
    application.count("one")
    wait_until(lambda: len(application.members()) == 2 and application.state() == "Stable", "two members", WAIT_S)
    owned = active(application.members())
    assert len(owned) == 4, f"each member has a task of each subtopology: {owned}"
    topics = application.tools.ok("topics", "--list").split()
    internal = {f"{application.name}-words-repartition", f"{application.name}-counts-changelog"}
    assert internal <= set(topics)
    described = application.tools.ok("topics", "--describe", "--topic", f"{application.name}-counts-changelog")
    assert "PartitionCount: 2" in described
    assert "cleanup.policy=compact" in described
    first.kill()
    first.wait(WAIT_S)
    application.count("two")
    wait_until(lambda: len(application.members()) == 1, "one member", WAIT_S)
    check_group(application)
    check_empty_group(application, internal)


def check_group(application: Application) -> None:
    """The tools list and describe a group with members, and protect it."""
    tools, name = application.tools, application.name
    assert name in tools.ok("streams-groups", "--list").split()
    assert [name, "Streams", "streams"] in tools.rows("groups", "--list")
    state = tools.ok("streams-groups", "--describe", "--group", name, "--state").split()
    assert state[-1] == "1", "the number of members"
    offsets = tools.ok("streams-groups", "--describe", "--group", name)
    for topic in (application.source, f"{name}-words-repartition"):
        assert topic in offsets
    done: Any = tools.run("streams-groups", "--delete", "--group", name)
    assert "is not EMPTY" in done.stdout + done.stderr


def check_empty_group(application: Application, internal: set[str]) -> None:
    """The tools reset the offsets of an empty group, and delete it with its internal topics."""
    tools, name = application.tools, application.name
    last = application.instances[-1]
    assert last.stdin is not None
    last.stdin.close()
    last.wait(WAIT_S)
    wait_until(lambda: application.state() == "Empty", "the group is empty", WAIT_S)
    reset = ("--reset-offsets", "--group", name, "--to-earliest", "--input-topic", application.source)
    planned = tools.ok("streams-groups", *reset, "--dry-run")
    rows = [line.split() for line in planned.splitlines() if application.source in line]
    assert sorted(row[2:4] for row in rows) == [["0", "0"], ["1", "0"]], planned
    tools.ok("streams-groups", *reset, "--execute")
    deleted = tools.ok("streams-groups", "--delete", "--group", name, "--delete-all-internal-topics")
    assert "was successful" in deleted
    wait_until(lambda: not internal & set(tools.ok("topics", "--list").split()), "the topics are deleted", WAIT_S)
    assert name not in tools.ok("streams-groups", "--list").split()
