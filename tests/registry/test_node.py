"""One node: what it answers before the topic is read, settings that change its API, a stop while it starts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from ottla.registry.configuration import read_settings
from ottla.registry.log import SchemaLog
from ottla.registry.server import Node
from ottla.testing import BrokerError, Ottla, RegistryThread
from ottla.testing.ports import ReservedPort
from tests.registry.registrations import register, schema_text

WITHIN_S = 30


def test_requests_wait_for_the_topic_with_503(ottla: Ottla, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    read = SchemaLog._read

    async def late(self: SchemaLog, consumer: Any) -> None:
        await asyncio.to_thread(release.wait)
        await read(self, consumer)

    monkeypatch.setattr(SchemaLog, "_read", late)
    port = ReservedPort()
    url = f"http://127.0.0.1:{port.number}"
    registry = RegistryThread(ottla.bootstrap, {"listeners": url})
    starting = threading.Thread(target=registry.start)
    starting.start()
    try:
        transport = httpx.HTTPTransport(retries=10)
        with httpx.Client(transport=transport) as client:
            response = client.get(f"{url}/subjects")
            assert (response.status_code, response.json()["error_code"]) == (503, 50302)
            assert response.headers["Retry-After"] == "1"
            release.set()
            starting.join(WITHIN_S)
            assert client.get(f"{url}/subjects").json() == []
    finally:
        release.set()
        starting.join(WITHIN_S)
        registry.close()


def test_settings_of_the_api(ottla: Ottla) -> None:
    given = {
        "schema.compatibility.level": "FULL",
        "mode.mutability": "false",
        "size.limit.filter.max.request.body.size": 1000,
    }
    with RegistryThread(ottla.bootstrap, given) as registry, httpx.Client(base_url=registry.url) as client:
        assert client.get("/config").json() == {"compatibilityLevel": "FULL"}
        refused = client.put("/mode", json={"mode": "READONLY"})
        assert (refused.status_code, refused.json()["error_code"]) == (422, 42205)
        large = client.post("/subjects/a/versions", json={"schema": "x" * 2000})
        assert (large.status_code, large.json()["error_code"]) == (413, 413)
        register(client, registry.url, "a", schema_text("A"))


def test_schemas_survive_a_restart(ottla: Ottla) -> None:
    for _ in range(2):
        with RegistryThread(ottla.bootstrap) as registry, httpx.Client() as client:
            assert register(client, registry.url, "a", schema_text("A")) == 1


def test_stop_while_the_broker_cannot_be_reached(ottla: Ottla) -> None:
    async def scenario() -> None:
        port = ReservedPort()
        settings = read_settings(
            {"kafkastore.bootstrap.servers": f"127.0.0.1:{port.number}", "listeners": "http://127.0.0.1:0"}
        )
        stop = asyncio.Event()
        running = asyncio.create_task(Node(settings).run(stop, lambda _urls: None))
        await asyncio.sleep(0.3)
        stop.set()
        async with asyncio.timeout(WITHIN_S):
            await running

    asyncio.run(scenario())


def test_start_without_a_broker_names_the_reason() -> None:
    port = ReservedPort()
    given = {"kafkastore.init.timeout.ms": 500}
    with pytest.raises(BrokerError, match="cannot use the brokers"):
        RegistryThread(f"127.0.0.1:{port.number}", given).start()
