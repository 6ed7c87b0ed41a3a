"""Run `ottla` in the process of the test against a running broker, without the settings of the machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer
from tests.clients.support import unique
from tests.conftest import RunningBroker


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OTTLA_")]:
        if not name.startswith("OTTLA_TEST"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def plain(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `ottla` without the address of a cluster."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def ottla(plain: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `ottla` on the broker of the test."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    return plain


@pytest.fixture
def ours(broker: RunningBroker) -> Iterator[Admin]:
    """An admin client to check the effects of a command."""
    with Admin(broker.bootstrap, default_api_timeout_ms=20_000) as admin:
        yield admin


@pytest.fixture
def topic(ours: Admin) -> Iterator[str]:
    """A topic of three partitions with 10, 20 and 30 records; their timestamps are ten seconds apart."""
    name = unique("cli")
    ours.create_topic(name, partitions=3, replication_factor=1)
    with Producer(bootstrap_servers=_servers(ours)) as producer:
        for partition in range(3):
            for number in range(10 * (partition + 1)):
                timestamp_ms = FIRST_MS + number * 10_000
                producer.send(name, b"v" * 20, partition=partition, timestamp_ms=timestamp_ms)
    yield name
    if any(listed.name == name for listed in ours.list_topics()):
        ours.delete_topic(name)


# The beginning of today, in UTC: records of a fixed day would be deleted by retention a week later.
FIRST_MS = int(time.time()) // 86_400 * 86_400_000


def _servers(admin: Admin) -> str:
    broker = admin.describe_cluster().brokers[0]
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def group(ours: Admin, topic: str) -> Iterator[str]:
    """A group without members that has committed offset 5 of each partition."""
    from ottla.clients import TopicPartition

    name = unique("group")
    ours.alter_group_offsets(name, {TopicPartition(topic, partition): 5 for partition in range(3)})
    yield name
    if any(listed.group_id == name for listed in ours.list_groups()):
        ours.delete_group(name)
