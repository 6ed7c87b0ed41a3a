"""Settings of brokers, moves and connectors: their pages, and changes after a question."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.common.ids import TopicPartition
from ottla.console.calls import Call, Done, Problem
from ottla.console.pages import connectors, nodes
from ottla.console.settings import ConsoleSettings
from ottla.console.view import Page
from tests.connect.rest.worker_process import WorkerProcess

from .conftest import RunningConsole, StartConsole, csrf, post


def node_of(console: RunningConsole) -> int:
    return int(console.json("/nodes")["brokers"][0]["node_id"])


def test_dynamic_setting_of_a_broker_changes_after_a_question(console: RunningConsole) -> None:
    base = f"/nodes/{node_of(console)}/settings"
    before = next(row for row in console.json(base)["settings"] if row["name"] == "log.cleaner.threads")
    assert not before["is_read_only"]
    path = f"{base}/change?name=log.cleaner.threads"
    token = csrf(console.http, path)
    asked = post(console.http, path, token, value="2", scope="broker")
    assert asked.status_code == 200
    assert "Nothing was changed yet." in asked.text
    assert console.json(f"{base}?filter=cleaner.threads")["settings"][0]["value"] == before["value"]
    done = post(console.http, path, token, value="2", scope="broker", confirm="1")
    assert done.status_code == 303
    changed = console.json(f"{base}?filter=cleaner.threads")["settings"][0]
    assert (changed["value"], changed["source"]) == ("2", "BROKER")
    post(console.http, path, token, restore="1", value="", scope="broker", confirm="1")
    assert console.json(f"{base}?filter=cleaner.threads")["settings"][0]["source"] != "BROKER"
    assert post(console.http, path, token, value="none", scope="broker").status_code == 400
    assert post(console.http, path, token, value="2", scope="world").status_code == 400
    assert console.http.get(f"{base}/change?name=node.id").status_code == 400
    assert console.http.get(f"{base}/change?name=wrong").status_code == 404
    assert console.http.get("/nodes/99/settings").status_code == 404
    assert console.http.get("/nodes/x/settings").status_code == 400


class FakeAdmin:
    """Two moving partitions, and what was cancelled."""

    def __init__(self) -> None:
        self.cancelled: dict[TopicPartition, object] = {}

    def list_partition_reassignments(self) -> dict[TopicPartition, object]:
        return {TopicPartition("orders", 0): None, TopicPartition("other", 1): None}

    def alter_partition_reassignments(self, replicas: dict[TopicPartition, object]) -> None:
        self.cancelled |= replicas


def call_with(admin: FakeAdmin, topic: str, *, read_only: bool = False, **form: str) -> Call:
    settings = ConsoleSettings(clients={"admin": {"bootstrap.servers": "127.0.0.1:1"}}, read_only=read_only)
    session: Any = SimpleNamespace(admin=admin, user="", cached=SimpleNamespace(forget=lambda: None))
    console: Any = SimpleNamespace(settings=settings)
    return Call(console, session, "/nodes/moves/cancel", {}, {"topic": topic}, form)


def test_moves_of_one_topic_are_cancelled_after_a_question() -> None:
    admin = FakeAdmin()
    page = nodes.cancel(call_with(admin, "orders"))
    assert isinstance(page, Page)
    assert page.data["moves"] == [{"topic": "orders", "partition": 0}]
    assert admin.cancelled == {}
    assert isinstance(nodes.cancel(call_with(admin, "orders", confirm="1")), Done)
    assert admin.cancelled == {TopicPartition("orders", 0): None}
    with pytest.raises(Problem, match="No partition of 'nothing' is moving"):
        nodes.cancel(call_with(admin, "nothing", confirm="1"))
    with pytest.raises(Problem, match="read-only"):
        nodes.cancel(call_with(admin, "other", read_only=True, confirm="1"))
    assert admin.cancelled == {TopicPartition("orders", 0): None}


def test_settings_of_connectors_are_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {
        "value.converter.basic.auth.user.info": "ann:hunter2",
        "value.converter.bearer.auth.token": "hunter2",
        "key.converter.ssl.keystore.password": "hunter2",
        "http.authorization": "hunter2",
        "account.key": "hunter2",
        "connection.url": "http://ann:hunter2@host",
    }
    public = {"key.converter": "JsonConverter", "value.converter.schemas.enable": "false", "token": "${env:TOKEN}"}
    answers: dict[str, Any] = {
        "/connectors/c/status": {"connector": {"state": "RUNNING"}},
        "/connectors/c": {"config": secret | public},
    }
    monkeypatch.setattr(connectors, "ask", lambda _, __, path: answers[path])
    console: Any = SimpleNamespace(settings=ConsoleSettings(clients={}, connect="http://127.0.0.1:1"))
    session: Any = SimpleNamespace(user="")
    page = connectors.connector(Call(console, session, "/connector", {}, {"name": "c"}, {}))
    assert isinstance(page, Page)
    assert "hunter2" not in repr(page)
    assert {name: page.data["config"][name] for name in public} == public


def test_new_connector_is_unassigned_until_a_worker_has_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_call: Call, _method: str, path: str) -> dict[str, Any]:
        if path == "/connectors/c":
            return {"config": {}, "type": "source"}
        raise Problem(404, "Connect worker: No status found for connector c")

    monkeypatch.setattr(connectors, "ask", ask)
    console: Any = SimpleNamespace(settings=ConsoleSettings(clients={}, connect="http://127.0.0.1:1"))
    session: Any = SimpleNamespace(user="")
    page = connectors.connector(Call(console, session, "/connector", {}, {"name": "c"}, {}))
    assert isinstance(page, Page)
    assert page.data["connector"] == {"state": "UNASSIGNED"}
    with pytest.raises(Problem):
        connectors.connector(Call(console, session, "/connector", {}, {"name": "missing"}, {}))


def test_connector_is_created_from_a_form_with_errors_at_fields(
    ottla: Any, start_console: StartConsole, tmp_path: Path
) -> None:
    with WorkerProcess(
        tmp_path / "worker", "serve", "-b", ottla.bootstrap, "--group", "g", "--listen", "127.0.0.1:0"
    ) as worker:
        clients = {"bootstrap.servers": ottla.bootstrap}
        console = start_console(clients, connect=f"http://{worker.host}:{worker.port}")
        plugins = {row["class"] for row in console.json("/connectors/new")["plugins"]}
        plugin = next(name for name in plugins if name.endswith("FileStreamSourceConnector"))
        path = f"/connectors/new?plugin={plugin}"
        page = console.http.get(path).text
        assert 'name="set:topic"' in page
        assert 'role="alert"' not in page
        token = csrf(console.http, path)
        evil = '"><script>alert(1)</script>'
        refused = post(console.http, path, token, **{"set:name": "lines", "set:tasks.max": evil})
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert "<script>alert" not in refused.text
        assert post(console.http, path, token, **{"set:name": ".."}).status_code == 400
        assert console.json("/connectors")["connectors"] == []
        lines = tmp_path / "lines.txt"
        lines.write_text("a\n")
        given = {"set:name": "lines", "set:topic": "lines", "other": f"file={lines}"}
        created = post(console.http, path, token, **given)
        assert created.headers["location"] == "/connector?name=lines&done=connector"
        assert console.json("/connector?name=lines")["config"]["file"] == str(lines)
        assert post(console.http, "/connector/delete?name=lines", token, confirm="line").status_code == 400
        assert post(console.http, "/connector/delete?name=lines", token, confirm="lines").status_code == 303
        assert console.json("/connectors")["connectors"] == []
        read_only = start_console(clients, connect=f"http://{worker.host}:{worker.port}", read_only=True)
        for page in ("/connectors/new", path, "/connector/delete?name=lines"):
            assert read_only.http.get(page).status_code == 403
        assert worker.stop() == 0
