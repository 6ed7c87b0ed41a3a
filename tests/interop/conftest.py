"""Stock Apache Kafka's tools pointed at the broker under test.

`tools.ok(name, ...)` gives a tool's standard output and expects exit code 0, `tools.fails(name, ...)` gives all that it
printed and expects another code. Tests use topics and groups of their own: the broker is shared by the session.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.support import unique, wait_until
from tests.conftest import RunningBroker
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm

HERE = Path(__file__).parent
GROUP_MEMBER_WAIT_S = 40.0


class Tools:
    """The stock tools with one broker's address filled in."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(
        self, name: str, *arguments: object, stdin: str = "", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        address: tuple[object, ...] = ("--bootstrap-server", self.bootstrap)
        if name == "cluster":  # wants its verb first, the other tools with verbs want it last
            address, arguments = (arguments[0], *address), arguments[1:]
        return kafka.tool(name, *address, *arguments, input=stdin, timeout=timeout_s)

    def ok(self, name: str, *arguments: object, stdin: str = "", timeout_s: float = 60.0) -> str:
        done = self.run(name, *arguments, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, f"{done.args} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fails(self, name: str, *arguments: object, stdin: str = "") -> str:
        done = self.run(name, *arguments, stdin=stdin)
        assert done.returncode != 0, f"{done.args} succeeded\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        """A tool in a process of its own."""
        return kafka.start_tool(name, *arguments, "--bootstrap-server", self.bootstrap)

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> str:
        """Create a topic (config names with _ for .); returns its name."""
        settings = [f"--config={key.replace('_', '.')}={value}" for key, value in config.items()]
        self.ok("topics", "--create", "--topic", name, "--partitions", partitions, *settings)
        return name

    def produce(self, topic: str, lines: list[str], *options: object) -> None:
        """Send lines `key<TAB>value` with the console producer."""
        text = "".join(f"{line}\n" for line in lines)
        self.ok("console-producer", "--topic", topic, "--reader-property=parse.key=true", *options, stdin=text)

    def consume(self, topic: str, count: int, *options: object) -> list[str]:
        """The first `count` records as lines `key<TAB>value`, by the console consumer."""
        wanted = ("--topic", topic, "--from-beginning", "--max-messages", count, "--timeout-ms", 20_000)
        output = self.ok("console-consumer", *wanted, "--formatter-property=print.key=true", *options)
        return output.splitlines()

    def rows(self, name: str, *arguments: object) -> list[list[str]]:
        """A tool's table as rows of words, without its heading."""
        return [line.split() for line in self.ok(name, *arguments).splitlines() if line.strip()][1:]


@pytest.fixture(autouse=True)
def _stock_tools_are_here(request: pytest.FixtureRequest) -> None:
    missing = missing_for_jvm() if request.node.get_closest_marker("jvm") else None
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.fixture
def tools(broker: RunningBroker) -> Tools:
    return Tools(broker.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or group that no other test uses."""
    return unique(request.node.originalname.removeprefix("test_")[:60])


@pytest.fixture
def node_id(tools: Tools) -> str:
    """The id of the only broker."""
    found = re.search(r"\(id: (\d+) ", tools.ok("broker-api-versions"))
    assert found
    return found[1]


@pytest.fixture
def group_member(tools: Tools) -> Iterator[Callable[[str, str], None]]:
    """Start a console consumer in its own process, a member of (topic, group); returns when the group is stable."""
    running: list[subprocess.Popen[str]] = []

    def start(topic: str, group: str) -> None:
        running.append(tools.start("console-consumer", "--topic", topic, "--group", group, "--from-beginning"))

        def stable() -> bool:
            done = tools.run("consumer-groups", "--describe", "--group", group, "--state")
            return done.returncode == 0 and "Stable" in done.stdout

        wait_until(stable, f"group {group} is stable", GROUP_MEMBER_WAIT_S)

    yield start
    for process in running:
        kafka.stop_process(process)
        if process.stdout:
            process.stdout.close()
