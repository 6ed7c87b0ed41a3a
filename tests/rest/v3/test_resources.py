"""GET of all resources of v3: each answer fits the OpenAPI document, and each link leads to an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import httpx
import jsonschema_rs
import pytest

from ottla.clients import Consumer
from ottla.rest import openapi
from ottla.rest.v3.routes import OPERATIONS, is_stream
from ottla.testing import Ottla
from tests.rest.conftest import RunningProxy


def cluster(proxy: RunningProxy) -> str:
    return str(proxy.http.get("/v3/clusters").json()["data"][0]["metadata"]["self"])


def validator(kind: str) -> Any:
    schema = {"$ref": f"#/components/schemas/{kind}", "components": {"schemas": openapi.schemas()}}
    return jsonschema_rs.validator_for(_with_null(schema))


def _with_null(schema: Any) -> Any:
    """OpenAPI 3.0 has `nullable`; JSON Schema has the type null."""
    if isinstance(schema, list):
        return [_with_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_null(value) for name, value in schema.items()}
    if found.pop("nullable", False) and "type" in found:
        found["type"] = [found["type"], "null"]
    return found


def links(body: Any) -> Iterator[str]:
    """The links in an answer."""
    if isinstance(body, list):
        for each in body:
            yield from links(each)
    elif isinstance(body, dict):
        for name, value in body.items():
            if name in {"related", "self"}:
                yield value
            else:
                yield from links(value)


@pytest.fixture(params=["group-of-", "team/50%2F, ", "/"])
def consumed(ottla: Ottla, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A topic, and a group with one member that has read a part of it."""
    topic = ottla.topic(partitions=2)
    group = f"{request.param}{topic}{request.param}"
    ottla.produce(topic, "a", "b", "c", partition=0)
    with Consumer(bootstrap_servers=ottla.bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(5):
            pass
        consumer.commit()
        ottla.produce(topic, "d", partition=0)
        yield topic, quote(group, safe="")


def test_each_link_leads_to_an_answer_that_fits_the_document(proxy: RunningProxy, consumed: tuple[str, str]) -> None:
    kinds: set[str] = set()
    base = cluster(proxy)
    waiting = ["/v3/clusters", f"{base}/topics/-/configs", f"{base}/consumer-groups/{consumed[1]}/lags"]
    seen = set[str]()
    while waiting:
        url = waiting.pop()
        if url in seen:
            continue
        seen.add(url)
        answer = proxy.http.get(url)
        if url.endswith("/acls"):  # this broker has no authorizer
            assert answer.status_code == 400, answer.text
            continue
        if url.endswith("/reassignment") and "/-/" not in url:
            assert answer.status_code == 404, answer.text
            continue
        assert answer.status_code == 200, (url, answer.text)
        body = answer.json()
        kinds.add(body["kind"])
        assert list(validator(body["kind"]).iter_errors(body)) == [], url
        assert body["metadata"]["self"].partition("?")[0] == (url if url.startswith("http") else proxy.url + url)
        waiting += [each for each in links(body) if "__" not in each and "/configs/" not in each]
    documented = {each.kind for each in OPERATIONS if each.method == "GET"}
    one_setting = {"KafkaTopicConfig", "KafkaBrokerConfig", "KafkaClusterConfig"}
    assert documented - kinds <= one_setting | {"KafkaAclList", "KafkaPartitionWithOffsets", "KafkaReassignment"}
    one = proxy.http.get(f"{cluster(proxy)}/topics/{consumed[0]}/configs/retention.ms").json()
    assert list(validator("KafkaTopicConfig").iter_errors(one)) == []


def test_group_has_members_assignments_and_lag(proxy: RunningProxy, consumed: tuple[str, str]) -> None:
    topic, group = consumed
    base = f"{cluster(proxy)}/consumer-groups/{group}"
    body = proxy.http.get(base).json()
    assert (body["state"], body["is_simple"], body["is_mixed_consumer_group"]) == ("STABLE", False, False)
    assert body["coordinator"]["related"].endswith("/brokers/1")
    member = proxy.http.get(f"{base}/consumers").json()["data"][0]["consumer_id"]
    assignments = proxy.http.get(f"{base}/consumers/{member}/assignments").json()["data"]
    assert [(each["topic_name"], each["partition_id"]) for each in assignments] == [(topic, 0), (topic, 1)]
    lag = proxy.http.get(f"{base}/lags/{topic}/partitions/0").json()
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (3, 4, 1)
    assert lag["consumer_id"] == member
    assert proxy.http.get(f"{base}/lags").json()["data"][0] == lag
    summary = proxy.http.get(f"{base}/lag-summary").json()
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("path", "error_code"),
    [
        ("/topics/none", 40403),
        ("/topics/none/partitions", 40403),
        ("/topics/none/configs", 40403),
        ("/topics/none/configs/retention.ms", 40403),
        ("/topics/{topic}/partitions/7", 404),
        ("/topics/{topic}/partitions/x", 404),
        ("/topics/{topic}/partitions/0/replicas/9", 404),
        ("/topics/{topic}/partitions/0/reassignment", 404),
        ("/topics/{topic}/configs/none", 404),
        ("/brokers/77", 404),
        ("/brokers/x", 404),
        ("/brokers/77/configs", 404),
        ("/broker-configs/none", 404),
        ("/consumer-groups/none", 404),
        ("/consumer-groups/none/lags", 404),
        ("/consumer-groups/none/consumers/x", 404),
    ],
)
def test_missing_resources_are_404(ottla: Ottla, proxy: RunningProxy, path: str, error_code: int) -> None:
    answer = proxy.http.get(cluster(proxy) + path.format(topic=ottla.topic()))
    assert (answer.status_code, answer.json()["error_code"]) == (404, error_code)


def test_slash_in_a_name_does_not_lift_the_limit_of_bodies() -> None:
    """Only records are a stream, which has no limit as a whole."""

    def scope(path: str) -> dict[str, object]:
        return {"path": unquote(path), "raw_path": path.encode()}

    assert is_stream(scope("/v3/clusters/c/topics/t/records"))
    assert not is_stream(scope("/v3/clusters/c/broker-configs/x%2Frecords"))
    assert not is_stream(scope("/v3/clusters/c/broker-configs/x%2frecords"))


def test_other_cluster_is_404(proxy: RunningProxy) -> None:
    answer = proxy.http.get("/v3/clusters/other/topics")
    assert answer.json() == {"error_code": 404, "message": "Cluster other cannot be found."}


def test_paths_of_confluent_server_are_served_with_their_own_links(proxy: RunningProxy) -> None:
    listed = proxy.http.get("/kafka/v3/clusters").json()
    assert listed["metadata"]["self"] == f"{proxy.url}/kafka/v3/clusters"
    assert proxy.http.get(listed["data"][0]["topics"]["related"]).status_code == 200


def test_document_lists_each_operation(proxy: RunningProxy) -> None:
    document = proxy.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.0")
    for operation in OPERATIONS:
        assert operation.method.lower() in document["paths"][f"/v3{operation.path}"]
    names = [row["operationId"] for path in document["paths"].values() for row in path.values()]
    assert len(names) == len(set(names))


def test_unknown_topic_in_many_is_skipped(ottla: Ottla, proxy: RunningProxy) -> None:
    """Topics come and go between the list and the descriptions."""
    with httpx.Client(base_url=proxy.url, timeout=40) as http:
        base = cluster(proxy)
        for _ in range(5):
            topic = ottla.topic()
            http.delete(f"{base}/topics/{topic}")
            assert http.get(f"{base}/topics").status_code == 200
            assert http.get(f"{base}/topics/-/configs").status_code == 200
