"""Deleted records, subjects and settings of connectors: their pages, and changes after a question or a check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.admin import OffsetSpec
from ottla.common.ids import TopicPartition
from ottla.console.pages import topics
from tests.connect.rest.worker_process import WorkerProcess
from tests.registry_process import RegistryProcess

from .conftest import RunningConsole, StartConsole, csrf, post
from .test_pages import command_parses

ORDERS = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
EVIL = '"><script>alert(1)</script>'


@pytest.fixture
def ten(ottla: Any) -> Iterator[Admin]:
    """The topic `orders` with ten records in partition 1."""
    with Admin(ottla.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
        with Producer(bootstrap_servers=ottla.bootstrap) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=1)
        yield admin


def first(admin: Admin, partition: int = 1) -> int:
    where = TopicPartition("orders", partition)
    return admin.list_offsets({where: OffsetSpec.EARLIEST})[where].offset


def test_records_are_deleted_after_a_question(ten: Admin, console: RunningConsole) -> None:
    path = "/topics/orders/delete-records"
    token = csrf(console.http, path)
    asked = post(console.http, path, token, partition="1", before="4")
    assert asked.status_code == 200
    assert "Nothing was deleted yet." in asked.text
    assert first(ten) == 0
    shown = console.http.post(path, data={"csrf": token, "partition": "1", "before": ""}, headers=JSON).json()
    assert (shown["first"], shown["before"], shown["end"], shown["deleted"]) == (0, 10, 10, False)
    command_parses(shown["command"])
    assert "--before 10" in shown["command"]
    done = post(console.http, path, token, partition="1", before="4", confirm="1")
    assert done.headers["location"] == "/topics/orders?done=records-deleted"
    assert first(ten) == 4
    for partition, before in (("1", "11"), ("7", "1"), ("1", "-1"), ("x", "1"), ("", "")):
        assert post(console.http, path, token, partition=partition, before=before, confirm="1").status_code in (
            400,
            404,
        )
    assert post(console.http, path, "0" * 64, partition="1", before="9", confirm="1").status_code == 403
    nothing = post(console.http, path, token, partition="1", before="2")
    assert "has no record before this offset" in nothing.text
    assert 'name="confirm"' not in nothing.text
    assert first(ten) == 4


def test_read_only_console_neither_deletes_nor_registers(ten: Admin, ottla: Any, start_console: StartConsole) -> None:
    console = start_console({"bootstrap.servers": ottla.bootstrap}, read_only=True)
    for path in (
        "/topics/orders/delete-records",
        "/schemas/new",
        "/schema/delete?subject=s",
        "/connector/change?name=c",
    ):
        assert console.http.get(path).status_code == 403, path
        assert console.http.post(path, data={"confirm": "1"}).status_code == 403, path
    assert "delete-records" not in console.http.get("/topics/orders").text
    assert first(ten) == 0


def test_partitions_of_a_topic_have_pages(ten: Admin, console: RunningConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    ten.create_topic("many", partitions=120)
    assert [row["partition"] for row in console.json("/topics/many")["partitions"]] == list(range(50))
    last = console.json("/topics/many?page=3")
    assert ([row["partition"] for row in last["partitions"]], last["pages"]) == (list(range(100, 120)), 3)
    assert last["partition_count"] == last["total"] == 120
    assert 'href="/topics/many?page=3"' in console.http.get("/topics/many").text
    assert console.json("/topics/many?only=troubled")["partitions"] == []
    assert "Pages" not in console.http.get("/topics/orders").text
    # A partition in trouble is found without its page.
    monkeypatch.setattr(topics, "_is_troubled", lambda row: row["partition"] == 77)
    assert [row["partition"] for row in console.json("/topics/many?only=troubled")["partitions"]] == [77]


JSON = {"accept": "application/json"}


def test_schema_is_registered_after_the_check_and_deleted(
    ottla: Any, start_console: StartConsole, tmp_path: Path
) -> None:
    with RegistryProcess(tmp_path / "registry", ottla.bootstrap) as registry:
        clients = {"bootstrap.servers": ottla.bootstrap}
        console = start_console(clients, registry={"schema.registry.url": registry.url})
        token = csrf(console.http, "/schemas/new")
        given = {"subject": "orders-value", "type": "AVRO", "schema": ORDERS}
        done = post(console.http, "/schemas/new", token, **given)
        assert done.headers["location"] == "/schema?subject=orders-value&done=registered"
        assert console.json("/schema?subject=orders-value")["version"] == 1
        page = console.http.get("/schemas/new?subject=orders-value").text
        assert "&#34;name&#34;: &#34;Order&#34;" in page
        for wrong in (EVIL, ORDERS.replace("long", "string")):
            refused = post(console.http, "/schemas/new", token, **{**given, "schema": wrong})
            assert refused.status_code == 400
            assert 'role="alert"' in refused.text
            assert "<script>alert" not in refused.text
        assert post(console.http, "/schemas/new", token, **{**given, "type": "XML"}).status_code == 400
        assert post(console.http, "/schemas/new", token, **{**given, "subject": " "}).status_code == 400
        assert console.json("/schema?subject=orders-value")["versions"] == [1]
        fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}]
        second = json.dumps({"type": "record", "name": "Order", "fields": fields})
        answer = console.http.post("/schemas/new", data={"csrf": token, **given, "schema": second}, headers=JSON).json()
        assert (answer["version"], answer["subject"]) == (2, "orders-value")
        path = "/schema/delete?subject=orders-value"
        for each in ("/schemas/new", path, f"{path}&version=1", "/schema?subject=orders-value"):
            command_parses(console.json(each)["command"])
        assert post(console.http, path, token, confirm="orders").status_code == 400
        assert console.http.get(f"{path}&version=9").status_code == 404
        assert post(console.http, f"{path}&version=1", token, confirm="orders-value").status_code == 303
        assert console.json("/schema?subject=orders-value")["versions"] == [2]
        assert post(console.http, path, token, confirm="orders-value").status_code == 303
        assert console.json("/schemas")["subjects"] == []
        for_good = console.json(f"{path}&permanent=1")
        assert for_good["versions"] == [1, 2]
        assert "--permanent" in for_good["command"]
        assert post(console.http, f"{path}&permanent=1", token, confirm="orders-value").status_code == 303
        assert console.http.get(f"{path}&permanent=1").status_code == 502


def test_connector_is_changed_after_the_check_and_keeps_its_secrets(
    ottla: Any, start_console: StartConsole, tmp_path: Path
) -> None:
    with WorkerProcess(
        tmp_path / "worker", "serve", "-b", ottla.bootstrap, "--group", "g", "--listen", "127.0.0.1:0"
    ) as worker:
        console = start_console({"bootstrap.servers": ottla.bootstrap}, connect=f"http://{worker.host}:{worker.port}")
        plugins = {row["class"] for row in console.json("/connectors/new")["plugins"]}
        plugin = next(name for name in plugins if name.endswith("FileStreamSourceConnector"))
        lines = tmp_path / "lines.txt"
        lines.write_text("a\n")
        secrets = "account.key=hunter2\nservice.url=http://ann:hunter2@host"
        given = {"set:name": "lines", "set:topic": "lines", "other": f"file={lines}\nbatch.size=5\n{secrets}"}
        path = f"/connectors/new?plugin={plugin}"
        token = csrf(console.http, path)
        assert post(console.http, path, token, **given).status_code == 303
        path = "/connector/change?name=lines"
        page = console.http.get(path)
        assert page.status_code == 200
        assert "hunter2" not in page.text + json.dumps(console.json(path))
        assert 'name="set:account.key"' in page.text
        command_parses(console.json(path)["command"])
        same = {"set:topic": "lines", "set:file": str(lines)}
        refused = post(console.http, path, token, **same, **{"set:tasks.max": "none", "set:batch.size": "few"})
        assert refused.status_code == 400
        assert refused.text.count('role="alert"') == 2
        assert "nothing was changed" in refused.text
        assert "hunter2" not in refused.text
        assert config(worker)["batch.size"] == "5"
        done = post(console.http, path, token, **same, **{"set:batch.size": "7"}, other="extra=1", remove="account.key")
        assert done.headers["location"] == "/connector?name=lines&done=connector"
        changed = config(worker)
        assert (changed["batch.size"], changed["extra"], changed["service.url"]) == (
            "7",
            "1",
            "http://ann:hunter2@host",
        )
        assert "account.key" not in changed
        assert changed["connector.class"] == plugin
        assert console.http.get("/connector/change?name=other").status_code == 404
        assert post(console.http, path, "0" * 64, **same).status_code == 403
        assert worker.stop() == 0


def config(worker: WorkerProcess) -> dict[str, str]:
    import httpx

    found: dict[str, str] = httpx.get(f"http://{worker.host}:{worker.port}/connectors/lines/config", timeout=30).json()
    return found
