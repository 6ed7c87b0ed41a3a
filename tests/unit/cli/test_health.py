"""`ottla health`: what each level asks for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Self

import pytest

from ottla.cli import health
from ottla.clients import admin as api
from ottla.common.failure import Failure
from ottla.tools.health import Facts
from tests.cli.commands import options_of


class Admin:
    """An admin client without a cluster."""

    def __init__(self, settings: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


@pytest.mark.parametrize(("level", "asked", "exit_code"), [("live", [], 0), ("ready", [], 0), ("stop", [1], 1)])
def test_only_stop_asks_the_controller(
    monkeypatch: pytest.MonkeyPatch, level: str, asked: list[int], exit_code: int
) -> None:
    found: list[int] = []
    broker = api.BrokerDescription(1, "h", 9092, None, is_fenced=False)

    async def only_broker(settings: object) -> int:
        return 1

    async def node_of(admin: object, timeout_s: float) -> int:
        return 1

    async def read(admin: object, node: int, timeout_s: float, now_ms: int) -> Facts:
        return Facts(node, now_ms, api.ClusterDescription("c", 1, (broker,)), {})

    async def read_for_stop(admin: Any, facts: Facts, timeout_s: float) -> Facts:
        found.append(facts.node)
        return facts  # without the quorum

    monkeypatch.setattr(api, "AsyncAdmin", Admin)
    for replaced in (only_broker, node_of, read, read_for_stop):
        monkeypatch.setattr(health, replaced.__name__, replaced)
    assert health.run(options_of("health", level, "-b", "127.0.0.1:1", "--node", "1")) == exit_code
    assert found == asked


def test_probe_of_life_imports_no_admin_client() -> None:
    """Each probe is a process, and imports are most of its CPU time."""
    code = (
        "import sys\nfrom ottla.cli.main import main\n"
        "status = main(['health', 'live', '-b', '127.0.0.1:1', '--timeout', '100ms'])\n"
        "needless = ('clients.admin.asynchronous', 'clients.admin.model', 'clients.producer.settings',"
        " 'clients.consumer.settings', 'registry_client.settings')\n"
        "print(status, [name for name in needless if f'ottla.{name}' in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.splitlines() == ["node ?: silent; no answer within 100ms", "1 []"]


def test_node_of_a_cluster_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def node_of(admin: object, timeout_s: float) -> None:
        return None

    monkeypatch.delenv("KAFKA_NODE_ID", raising=False)
    monkeypatch.setattr(api, "AsyncAdmin", Admin)
    monkeypatch.setattr(health, "node_of", node_of)
    with pytest.raises(Failure, match="several nodes"):
        health.run(options_of("health", "stop", "-b", "127.0.0.1:1"))
