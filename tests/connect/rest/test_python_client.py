"""A public client of Kafka Connect's REST API (kafka-connect-py) works with a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_connect import KafkaConnect

from tests.connect.rest.serving import serving

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONFIG = {"name": "lines", "connector.class": SOURCE, "tasks.max": "1", "file": "/tmp/in.txt", "topic": "lines"}


@pytest.fixture
def client() -> Iterator[Any]:
    with serving() as running:
        yield KafkaConnect(f"http://{running.host}:{running.port}")


def test_all_calls_of_the_client_work(client: Any) -> None:
    assert client.get_cluster_info()["version"] == "4.3.0"
    assert SOURCE in [each["class"] for each in client.list_connector_plugins()]
    assert client.validate_connector_config("FileStreamSource", CONFIG)["error_count"] == 0
    created = client.create_connector({"name": "lines", "config": CONFIG})
    assert created["config"]["file"] == "/tmp/in.txt"
    assert client.list_connectors() == ["lines"]
    assert client.get_connector("lines")["type"] == "source"
    assert client.get_connector_config("lines") == CONFIG
    updated = client.update_connector("lines", {**CONFIG, "batch.size": "7"})
    assert updated["config"]["batch.size"] == "7"
    for change in (client.pause_connector, client.resume_connector, client.stop_connector, client.resume_connector):
        change("lines")
    states = [client.get_connector_status("lines")["connector"]["state"] for _ in range(200)]
    assert states[-1] == "RUNNING"
    assert any(client.list_connector_tasks("lines") for _ in range(200))
    assert client.get_connector_task_status("lines", 0)["id"] == 0
    client.restart_connector("lines", include_tasks=True)
    client.restart_connector_task("lines", 0)
    assert "lines" in client.list_connector_topics("lines")
    client.reset_connector_topics("lines")
    client.delete_connector("lines")
    assert client.list_connectors() == []
