"""A registry on the target of a mirror that copies `_schemas`: it reads at once, and writes after the promotion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx import Client, HTTPStatusError

from ottla.cli.main import main
from ottla.clients.admin import Admin, ConfigResource, ResourceType
from tests.mirrors import SETTINGS
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.registry.nodes import GROUPS, NODE
from tests.registry.registrations import http, register, schema_text, wait_until
from tests.registry_process import RegistryProcess

pytestmark = pytest.mark.timeout(240)
BROKER = {**GROUPS, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "source", BROKER) as broker:
        yield broker


@pytest.fixture
def target(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "target", BROKER) as broker:
        yield broker


def test_registry_reads_copied_schemas_and_writes_after_the_promotion(
    source: OttlaProcess, target: OttlaProcess, tmp_path: Path
) -> None:
    first = RegistryProcess(tmp_path / "first", source.bootstrap, None, **NODE)
    second = RegistryProcess(tmp_path / "second", target.bootstrap, None, kafkastore_timeout_ms=2000, **NODE)
    with Admin(target.bootstrap) as admin, http() as client, first:
        known = register(client, first.url, "orders-value", schema_text("A"))
        settings = {"bootstrap.servers": source.bootstrap, "topics": "_schemas|orders.*", **SETTINGS}
        admin.alter_config(ConfigResource(ResourceType.MIRROR, "dr"), settings)
        wait_until(lambda: "_schemas" in {each.name for each in admin.list_topics()})
        with second:
            wait_until(lambda: client.get(f"{second.url}/subjects").json() == ["orders-value"])
            assert client.get(f"{second.url}/schemas/ids/{known}").status_code == 200
            later = register(client, first.url, "orders-value", schema_text("B"))
            wait_until(lambda: client.get(f"{second.url}/schemas/ids/{later}").status_code == 200)
            with pytest.raises(HTTPStatusError):
                register(client, second.url, "here", schema_text("C"))
            first.stop()
            assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
            assert registered(client, second.url) == later + 1


def registered(client: Client, url: str) -> int:
    """The id of a new schema, as soon as the registry may write."""
    found: list[int] = []

    def is_registered() -> bool:
        try:
            found.append(register(client, url, "here", schema_text("C")))
        except HTTPStatusError:
            return False
        return True

    wait_until(is_registered)
    return found[0]
