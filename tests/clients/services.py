"""Runs the services of examples/services as processes, and reads the topics, groups and ledgers that they write."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from confluent_kafka import Consumer, TopicPartition

from .support import WAIT_S, wait_until

SERVICES = Path(__file__).parents[2] / "examples" / "services"
PARTITIONS = 6
OWNED = re.compile(r": (Assigned|Revoked) \[([\d, ]*)\]")


class Stored(NamedTuple):
    """One record of a topic."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Service:
    """One process of a service. It logs to a file in the test's directory."""

    def __init__(self, script: str, *arguments: str, environment: Mapping[str, str], directory: Path) -> None:
        self.script = script
        self._asked = False
        self.log_path = directory / f"{script}-{'-'.join(arguments)}-{len(list(directory.iterdir()))}.log"
        command = [sys.executable, "-W", "always::ResourceWarning", str(SERVICES / script), *arguments]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, pattern: str) -> str:
        """Wait for the first match in the log. Fails with the log if the process ends first or the time is over."""

        def found() -> bool:
            assert self.process.poll() is None, f"{self.script} has ended:\n{self.log}"
            return re.search(pattern, self.log) is not None

        wait_until(found, f"{pattern!r} in the log of {self.script}", 2 * WAIT_S)
        match = re.search(pattern, self.log)
        assert match is not None
        return match[0]

    def post(self, path: str, body: Any, expected: int) -> dict[str, int]:
        """Send a POST request, check the status, and return the response."""
        address = self.wait_for(r"http://127\.0\.0\.1:\d+")
        response = httpx.post(address + path, json=body, timeout=2 * WAIT_S, trust_env=False)
        assert response.status_code == expected, f"{self.script} {path}: {response.status_code} {response.text}"
        answer: dict[str, int] = response.json()
        return answer

    def get(self, path: str) -> Any:
        address = self.wait_for(r"http://127\.0\.0\.1:\d+")
        return httpx.get(address + path, timeout=WAIT_S, trust_env=False).raise_for_status().json()

    def owned(self, *, eager: bool) -> set[int]:
        """Return the service's partitions according to its log. With `eager`, each assignment lists all partitions."""
        owned: set[int] = set()
        for kind, numbers in OWNED.findall(self.log):
            partitions = {int(number) for number in numbers.split(",") if number.strip()}
            if kind == "Revoked":
                owned -= partitions
            else:
                owned = partitions if eager else owned | partitions
        return owned

    def terminate(self) -> None:
        """Send SIGTERM once. After the first signal, the process has no handler for a second one."""
        if not self._asked:
            self._asked = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the service with SIGTERM, and check its exit code and log."""
        self.terminate()
        code = self.process.wait(2 * WAIT_S)
        assert code == 0, f"exit code {code} of {self.script}:\n{self.log}"
        for sign in ("Traceback", "ResourceWarning", " ERROR "):
            assert sign not in self.log, f"{sign.strip()} in the log of {self.script}:\n{self.log}"

    def kill(self) -> None:
        """Kill the process if a failed test left it running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)


def share(members: Sequence[Service], *, eager: bool) -> bool:
    """Whether every partition has exactly one owner and every member owns a partition."""
    owned = [member.owned(eager=eager) for member in members]
    return all(owned) and sorted(number for each in owned for number in each) == list(range(PARTITIONS))


def rows_of(ledger: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a ledger."""
    text = ledger.read_text() if ledger.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def records_of(bootstrap: str, topic: str) -> dict[int, list[Stored]]:
    """Return the records of a topic by partition, as librdkafka reads them."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "log_level": 2})
    try:
        found: dict[int, list[Stored]] = {}
        for number in reader.list_topics(topic, WAIT_S).topics[topic].partitions:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)
            reader.assign([TopicPartition(topic, number, low)])
            rows = found[number] = []
            while low + len(rows) < high:
                message = reader.poll(WAIT_S)
                assert message is not None, f"{topic}/{number} has no record at {low + len(rows)}"
                assert message.error() is None, message.error()
                rows.append(Stored(message.key(), message.value(), tuple(message.headers() or ())))
        return found
    finally:
        reader.close()


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 2})
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return {row.partition: row.offset for row in reader.committed(partitions, WAIT_S)}
    finally:
        reader.close()
