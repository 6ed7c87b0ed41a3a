"""Changes of rules, users and quotas by forms: each is seen by the cluster, and refused without a right."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.clients.admin import QuotaEntity, QuotaName

from .conftest import RunningConsole, StartConsole, csrf, post

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def ottla(ottla_broker: Callable[..., Any]) -> Any:
    return ottla_broker({"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"})


def add(console: RunningConsole, **fields: str) -> int:
    return post(console.http, "/access/add", token=csrf(console.http), **fields).status_code


def test_rules_are_added_and_removed(console: RunningConsole) -> None:
    assert add(console, user="ann", resource="topic:orders-*", operations="read,describe") == 303
    assert add(console, user="*", resource="topic:secrets", operations="all", deny="1", host="10.0.0.1") == 303
    assert add(console, user="app", resource="topic:orders", operations="producer") == 303
    rules = console.json("/access")["acls"]
    assert {(r["principal"], r["permission"], r["operation"], r["resource"], r["host"]) for r in rules} == {
        ("User:app", "allow", "create", "topic:orders", "*"),
        ("User:app", "allow", "describe", "topic:orders", "*"),
        ("User:app", "allow", "write", "topic:orders", "*"),
        ("User:ann", "allow", "describe", "topic:orders-*", "*"),
        ("User:ann", "allow", "read", "topic:orders-*", "*"),
        ("User:*", "deny", "all", "topic:secrets", "10.0.0.1"),
    }
    ann = next(rule for rule in rules if rule["operation"] == "read")
    question = console.http.get("/access/remove", params=ann)
    assert "allow User:ann read on topic:orders-* from *" in question.text
    assert console.json("/access")["acls"] == rules
    assert console.http.post("/access/remove", params=ann, data={"csrf": csrf(console.http)}).status_code == 200
    assert console.json("/access")["acls"] == rules  # a POST without the answer changes nothing
    data = {"csrf": csrf(console.http), "confirm": "yes"}
    assert console.http.post("/access/remove", params=ann, data=data).status_code == 303
    assert [rule for rule in rules if rule != ann] == console.json("/access")["acls"]
    assert console.http.post("/access/remove", params=ann, data=data).status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "", "resource": "topic:a", "operations": "read"},
        {"user": "ann", "resource": "topik:a", "operations": "read"},
        {"user": "ann", "resource": "topic:", "operations": "read"},
        {"user": "ann", "resource": "topic:a", "operations": ""},
        {"user": "ann", "resource": "topic:a", "operations": "fly"},
        {"user": "ann", "resource": "group:a", "operations": "producer"},
        {"user": "ann", "resource": "topic:a", "operations": "producer", "deny": "1"},
    ],
)
def test_wrong_rules_are_refused(console: RunningConsole, fields: dict[str, str]) -> None:
    assert add(console, **fields) == 400
    assert console.json("/access")["acls"] == []


def test_users_are_set_and_removed_and_their_passwords_not_shown(
    ottla: Any, console: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path, token = "/access/users/set", csrf(console.http)
    fields = {"user": "ann", "password": "pa55-w0rd", "mechanism": "SCRAM-SHA-256"}
    answer = console.http.post(path, data={"csrf": token, **fields}, headers={"accept": "application/json"})
    assert answer.status_code == 200
    assert "pa55-w0rd" not in answer.text
    assert not [each for each in caplog.records if "pa55-w0rd" in each.getMessage()]
    (user,) = console.json("/access/users")["users"]
    assert (user["user"], user["credentials"][0]["mechanism"]) == ("ann", "SCRAM-SHA-256")
    for wrong in ({"password": ""}, {"user": ""}, {"mechanism": "PLAIN"}, {"password": "x" * 1001}):
        assert post(console.http, path, token=token, **fields | wrong).status_code == 400
    remove = "/access/users/remove?user=ann"
    assert post(console.http, remove, token=token, confirm="an").status_code == 400
    assert post(console.http, remove, token=token, confirm="ann").status_code == 303
    with Admin(ottla.bootstrap) as admin:
        assert admin.describe_scram_credentials() == {}
    assert post(console.http, remove, token=token, confirm="ann").status_code == 404
    assert console.http.get("/access/users/remove").status_code == 400


def test_quotas_are_set_and_removed(ottla: Any, console: RunningConsole) -> None:
    path, token = "/access/quotas/set", csrf(console.http)

    def change(**fields: str) -> int:
        given = {"user": "", "client": "", "ip": "", "quota": "producer_byte_rate", "limit": "10MiB"}
        return post(console.http, path, token=token, **given | fields).status_code

    assert change(user="ann", client="default") == 303
    assert change(ip="10.0.0.1", quota="connection_creation_rate", limit="5") == 303
    with Admin(ottla.bootstrap) as admin:
        assert admin.describe_client_quotas() == {
            QuotaEntity("ann", QuotaName.DEFAULT): {"producer_byte_rate": 10 * 1024 * 1024},
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5},
        }
    assert change(user="ann", client="default", limit="") == 303
    assert [row["entity"] for row in console.json("/access/quotas")["quotas"]] == [{"ip": "10.0.0.1"}]
    for wrong in ({}, {"user": "a", "ip": "10.0.0.1"}, {"user": "a", "limit": "much"}, {"user": "a", "quota": "x"}):
        assert change(**wrong) == 400


def test_changes_need_a_right_and_a_console_that_may_change(
    ottla_broker: Callable[..., Any], start_console: StartConsole
) -> None:
    broker = ottla_broker({"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"})
    changes = {
        "/access/add": {"user": "ann", "resource": "topic:a", "operations": "read"},
        "/access/users/set": {"user": "ann", "password": "x"},
        "/access/quotas/set": {"user": "ann", "quota": "producer_byte_rate", "limit": "1"},
    }
    console = start_console({"bootstrap.servers": broker.bootstrap})
    for path, fields in changes.items():
        assert post(console.http, path, token=csrf(console.http), **fields).status_code == 403, path
    reading = start_console({"bootstrap.servers": broker.bootstrap}, read_only=True)
    for path, fields in changes.items():
        assert reading.http.get(path).status_code == 403, path
        assert post(reading.http, path, token=csrf(console.http), **fields).status_code == 403, path
