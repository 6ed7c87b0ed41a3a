"""Requests of v3 that change the cluster: topics, settings, ACLs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing import Ottla
from tests.rest.conftest import RunningProxy, StartProxy
from tests.rest.v3.test_resources import cluster


def test_topic_is_created_grown_and_deleted(proxy: RunningProxy) -> None:
    topics = f"{cluster(proxy)}/topics"
    given = {
        "topic_name": "made",
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "value": None}],
    }
    checked = proxy.http.post(topics, json={**given, "validate_only": True})
    assert (checked.status_code, proxy.http.get(f"{topics}/made").status_code) == (200, 404)
    answer = proxy.http.post(topics, json=given)
    assert (answer.status_code, answer.json()["partitions_count"]) == (201, 2)
    assert answer.headers["location"] == f"{topics}/made"
    assert proxy.http.get(f"{topics}/made/configs/cleanup.policy").json()["value"] == "compact"
    again = proxy.http.post(topics, json=given)
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)
    assert proxy.http.patch(f"{topics}/made", json={"partitions_count": 3}).json()["partitions_count"] == 3
    assert proxy.http.patch(f"{topics}/made", json={"partitions_count": 1}).status_code == 400
    assert proxy.http.delete(f"{topics}/made").status_code == 204
    assert proxy.http.delete(f"{topics}/made").status_code == 404


def test_topic_with_placed_replicas(ottla: Ottla, proxy: RunningProxy) -> None:
    topics = f"{cluster(proxy)}/topics"
    answer = proxy.http.post(topics, json={"topic_name": "placed", "replicas_assignments": {"0": [1], "1": [1]}})
    assert answer.status_code == 201, answer.text
    assert len(proxy.http.get(f"{topics}/placed/partitions").json()["data"]) == 2
    proxy.http.delete(f"{topics}/placed")


@pytest.mark.parametrize(
    ("body", "status", "error_code"),
    [
        (None, 422, 42206),
        ([], 400, 400),
        ({}, 400, 400),
        ({"topic_name": "a b"}, 422, 42206),
        ({"topic_name": 1}, 400, 400),
        ({"topic_name": "t", "partitions_count": "two"}, 400, 400),
        ({"topic_name": "t", "partitions_count": 0}, 400, 40002),
        ({"topic_name": "t", "replication_factor": 9}, 400, 40002),
        ({"topic_name": "t", "configs": [{"value": "x"}]}, 400, 400),
        ({"topic_name": "t", "configs": [{"name": "none", "value": "x"}]}, 400, 40002),
        ({"topic_name": "t", "replicas_assignments": {"x": [1]}}, 400, 400),
        ({"topic_name": "t", "replicas_assignments": {"0": 1}}, 400, 400),
    ],
)
def test_wrong_topic_is_refused(proxy: RunningProxy, body: Any, status: int, error_code: int) -> None:
    content = {} if body is None else {"json": body}
    answer = proxy.http.post(f"{cluster(proxy)}/topics", **content)
    assert (answer.status_code, answer.json()["error_code"]) == (status, error_code), answer.text


def test_body_that_is_not_json_is_400(proxy: RunningProxy) -> None:
    answer = proxy.http.post(f"{cluster(proxy)}/topics", content=b"{")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


def test_settings_of_a_topic(ottla: Ottla, proxy: RunningProxy) -> None:
    configs = f"{cluster(proxy)}/topics/{ottla.topic()}/configs"
    assert proxy.http.put(f"{configs}/retention.ms", json={"value": "1000"}).status_code == 204
    entry = proxy.http.get(f"{configs}/retention.ms").json()
    assert (entry["value"], entry["source"], entry["is_default"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", False)
    assert entry["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    changes = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.bytes", "value": "2000000"}]
    assert proxy.http.post(f"{configs}:alter", json={"data": changes, "validate_only": True}).status_code == 204
    assert proxy.http.get(f"{configs}/retention.ms").json()["value"] == "1000"
    assert proxy.http.post(f"{configs}:alter", json={"data": changes}).status_code == 204
    assert proxy.http.get(f"{configs}/retention.ms").json()["is_default"] is True
    assert proxy.http.delete(f"{configs}/segment.bytes").status_code == 204
    assert proxy.http.get(f"{configs}/segment.bytes").json()["is_default"] is True


@pytest.mark.parametrize("owner", ["brokers/1/configs", "broker-configs"])
def test_settings_of_brokers(proxy: RunningProxy, owner: str) -> None:
    configs = f"{cluster(proxy)}/{owner}"
    assert proxy.http.put(f"{configs}/log.retention.ms", json={"value": "900000"}).status_code == 204
    assert proxy.http.get(f"{configs}/log.retention.ms").json()["value"] == "900000"
    assert proxy.http.delete(f"{configs}/log.retention.ms").status_code == 204
    wrong = proxy.http.post(f"{configs}:alter", json={"data": [{"name": "log.retention.ms", "value": "x"}]})
    assert (wrong.status_code, wrong.json()["error_code"]) == (400, 40002)


@pytest.mark.parametrize(
    "body", [{}, {"data": 1}, {"data": [1]}, {"data": [{"value": "1"}]}, {"data": [{"name": "a", "operation": "ADD"}]}]
)
def test_wrong_changes_are_400(ottla: Ottla, proxy: RunningProxy, body: Any) -> None:
    answer = proxy.http.post(f"{cluster(proxy)}/topics/{ottla.topic()}/configs:alter", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)


# -- ACLs ----------------------------------------------------------------------------------------------------------

ACL = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "PREFIXED",
    "principal": "User:ann",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


@pytest.fixture
def with_acls(ottla_broker: Any, start_proxy: StartProxy) -> RunningProxy:
    broker = ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    )
    return start_proxy({"bootstrap.servers": broker.bootstrap})


def test_acls_are_created_found_and_deleted(with_acls: RunningProxy) -> None:
    http, acls = with_acls.http, f"{cluster(with_acls)}/acls"
    created = http.post(acls, json=ACL)
    assert created.status_code == 201
    assert http.get(created.headers["location"]).json()["data"][0]["principal"] == "User:ann"
    several = [{**ACL, "operation": "WRITE"}, {**ACL, "permission": "DENY", "principal": "User:bob"}]
    assert http.post(f"{acls}:batch", json={"data": several}).status_code == 201
    assert len(http.get(acls).json()["data"]) == 3
    found = http.get(acls, params={"principal": "User:ann"}).json()
    assert [each["operation"] for each in found["data"]] == ["READ", "WRITE"]
    assert found["data"][0] | {"metadata": {}, "kind": "", "cluster_id": ""} == {
        **ACL, "metadata": {}, "kind": "", "cluster_id": "",
    }  # fmt: skip
    wanted = {"resource_type": "TOPIC", "pattern_type": "ANY", "operation": "ANY", "permission": "DENY"}
    deleted = http.delete(acls, params=wanted)
    assert [each["principal"] for each in deleted.json()["data"]] == ["User:bob"]
    assert len(http.get(acls).json()["data"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": "ANY"},
        {"operation": "UNKNOWN"},
        {"permission": "ANY"},
        {"pattern_type": "MATCH"},
        {"operation": "FLY"},
        {"principal": None},
        {"host": 1},
    ],
)
def test_wrong_acls_are_400(with_acls: RunningProxy, change: dict[str, Any]) -> None:
    acls = f"{cluster(with_acls)}/acls"
    assert with_acls.http.post(acls, json={**ACL, **change}).status_code == 400
    assert with_acls.http.post(f"{acls}:batch", json={"data": [ACL, {**ACL, **change}]}).status_code == 400
    assert with_acls.http.get(acls).json()["data"] == []


def test_deletion_without_a_filter_is_refused(with_acls: RunningProxy) -> None:
    acls = f"{cluster(with_acls)}/acls"
    with_acls.http.post(acls, json=ACL)
    answer = with_acls.http.delete(acls)
    assert answer.json() == {"error_code": 400, "message": "resource_type cannot be unspecified or UNKNOWN"}
    assert len(with_acls.http.get(acls).json()["data"]) == 1
