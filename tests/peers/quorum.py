"""kafka-metadata-quorum: who leads and who votes, and changes of the voters."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from . import kafka

PATIENCE_S = 60.0
TOOL_TIMEOUT_S = 15.0


class Quorum:
    """kafka-metadata-quorum, pointed at some controllers."""

    def __init__(self, *controllers: str) -> None:
        self.controllers = ",".join(controllers)

    def run(self, *arguments: object) -> str:
        how = ("--bootstrap-controller", self.controllers, *arguments)
        done = kafka.tool("metadata-quorum", *how, timeout=TOOL_TIMEOUT_S)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self) -> tuple[int, dict[int, str]]:
        """The leader, and the directory of each voter."""
        text = self.run("describe", "--status")
        leader = re.search(r"LeaderId: +(\d+)", text)
        assert leader is not None
        voters = re.search(r"CurrentVoters: +(.*)", text)
        assert voters is not None
        found = re.findall(r'"id": (\d+), "directoryId": "([^"]+)"', voters[1])
        return int(leader[1]), {int(node): directory for node, directory in found}

    def until_leader(self, node: int) -> None:
        self._until(lambda: self.status()[0] == node, f"node {node} does not become the leader")

    def until_observed(self, node: int) -> None:
        row = re.compile(rf"^{node}\s.*\s0\s.*Observer", re.MULTILINE)
        self._until(lambda: row.search(self.run("describe", "--replication")), f"node {node} does not observe")

    def _until(self, condition: Callable[[], object], problem: str) -> None:
        """Poll. A tool that asks during an election may ask the previous leader until its own timeout of a minute."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(kafka.ToolError, AssertionError):
                if condition():
                    return
            time.sleep(0.2)
        raise AssertionError(problem)

    def add(self, properties: Path) -> None:
        self.run("--command-config", properties, "add-controller")

    def remove(self, node: int) -> None:
        directory = self.status()[1][node]
        self.run("remove-controller", "--controller-id", node, "--controller-directory-id", directory)
