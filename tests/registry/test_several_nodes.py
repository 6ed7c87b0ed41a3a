"""Several nodes of one registry as processes: forwarding, failures of the primary and of the broker."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.registry.nodes import GROUPS, SESSION_MS, nodes, schemas_of
from tests.registry.registrations import Registrations, http, register, schema_text, wait_until
from tests.registry_process import RegistryProcess

pytestmark = pytest.mark.timeout(240)
BROKER = {
    **GROUPS,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "broker", BROKER) as broker:
        yield broker


def test_each_node_accepts_each_request(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 3) as (primary, *followers), http() as client:
        first = register(client, followers[0].url, "a", schema_text("A"))
        assert register(client, followers[1].url, "a", schema_text("A")) == first
        assert register(client, primary.url, "b", schema_text("B")) == first + 1
        missing = client.delete(f"{followers[0].url}/subjects/nothing")
        assert (missing.status_code, missing.json()["error_code"]) == (404, 40401)
        for node in followers:
            wait_until(lambda node=node: client.get(f"{node.url}/subjects").json() == ["a", "b"])


def test_forwarded_request_is_not_forwarded_again(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 2) as (_, follower), http() as client:
        response = client.post(
            f"{follower.url}/subjects/a/versions",
            content=json.dumps({"schema": schema_text("A")}),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json", "X-Forward": "true"},
        )
        assert (response.status_code, response.json()["error_code"]) == (500, 50004)
        assert client.get(f"{follower.url}/subjects").json() == []


def test_killed_primary_loses_no_schema_and_no_id_is_used_twice(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 3) as every:
        with Registrations([node.url for node in every], threads=6) as clients:
            clients.wait_for(100)
            for killed in every[:2]:
                killed.kill()
                clients.wait_for(50)
                killed.start()
                clients.wait_for(50)
        clients.check([node.url for node in every], lambda: schemas_of(own_broker.bootstrap))


def test_paused_primary_cannot_write_after_another_one_was_elected(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 2) as (old, new):
        with Registrations([old.url, new.url], threads=6) as clients:
            clients.wait_for(100)
            for _ in range(2):
                old.signal(signal.SIGSTOP)
                wait_until(lambda: "This node is the primary" in new.log())
                with http() as client:
                    register(client, new.url, "during", schema_text(f"During_{time.monotonic_ns()}"))
                old.signal(signal.SIGCONT)
                clients.wait_for(50)
        clients.check([old.url, new.url], lambda: schemas_of(own_broker.bootstrap))


def test_restarted_broker_interrupts_only(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 2) as every:
        with Registrations([node.url for node in every], threads=4) as clients:
            clients.wait_for(100)
            own_broker.kill()
            time.sleep(1)
            own_broker.start()
            clients.wait_for(100, timeout_s=60)
        clients.check([node.url for node in every], lambda: schemas_of(own_broker.bootstrap))


def test_stopped_primary_hands_over_at_once(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 2) as (primary, other), http() as client:
        assert primary.stop() == 0
        wait_until(lambda: "This node is the primary" in other.log(), timeout_s=SESSION_MS / 1000 + 5)
        register(client, other.url, "a", schema_text("A"))


def test_node_that_is_not_eligible_never_writes(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with nodes(tmp_path, own_broker.bootstrap, 1, leader_eligibility="false") as (node,), http() as client:
        response = client.post(f"{node.url}/subjects/a/versions", json={"schema": schema_text("A")})
        assert (response.status_code, response.json()["error_code"]) == (500, 50004)
        assert client.get(f"{node.url}/subjects").json() == []


def test_topic_that_is_not_compacted_is_refused(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with Admin(own_broker.bootstrap) as admin:
        admin.create_topic("_schemas", partitions=1)
    node = RegistryProcess(tmp_path / "node", own_broker.bootstrap)
    node.launch()
    assert node.wait() == 1
    assert "it must be compact" in node.log()
