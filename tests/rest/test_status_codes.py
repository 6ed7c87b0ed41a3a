"""The documented status and error codes of v2, each by the shortest request that gets it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ottla.testing import Ottla
from tests.registry.stand_in import StandIn

from .conftest import BINARY, JSON, V2, RunningProxy, StartProxy
from .test_schemas import AVRO

RECORD: Any = {"records": [{"value": "eA=="}]}
SCHEMA_RECORD: Any = {"records": [{"value": 1}], "value_schema": '"int"'}
POSITION: Any = {"topic": "TOPIC", "partition": 0}


class Row(NamedTuple):
    """A request and its codes. TOPIC and INSTANCE stand for names."""

    status: int
    code: int | None
    method: str
    path: str
    body: Any = None
    content_type: str = V2
    accept: str = "*/*"


INSTANCE = "/consumers/group/instances/INSTANCE"
ROWS = (
    Row(200, None, "GET", "/topics"),
    Row(200, None, "GET", "/topics/TOPIC"),
    Row(404, 40401, "GET", "/topics/none"),
    Row(406, 406, "GET", "/topics", accept="text/html"),
    Row(200, None, "GET", "/topics/TOPIC/partitions"),
    Row(404, 40401, "GET", "/topics/none/partitions"),
    Row(200, None, "GET", "/topics/TOPIC/partitions/0"),
    Row(404, 40402, "GET", "/topics/TOPIC/partitions/1"),
    Row(404, 40401, "GET", "/topics/none/partitions/0"),
    Row(200, None, "GET", "/topics/TOPIC/partitions/0/offsets"),
    Row(404, 40402, "GET", "/topics/TOPIC/partitions/1/offsets"),
    Row(200, None, "POST", "/topics/TOPIC", RECORD, BINARY),
    Row(200, None, "POST", "/topics/TOPIC", RECORD, JSON),
    Row(200, None, "POST", "/topics/TOPIC", SCHEMA_RECORD, AVRO),
    Row(404, 40401, "POST", "/topics/none", RECORD, BINARY),
    Row(415, 415, "POST", "/topics/TOPIC", RECORD, "application/json"),
    Row(406, 406, "POST", "/topics/TOPIC", RECORD, BINARY, "text/html"),
    Row(422, 422, "POST", "/topics/TOPIC", {"records": []}, BINARY),
    Row(400, 400, "POST", "/topics/TOPIC", {"records": [{"value": "?"}]}, BINARY),
    Row(422, 42201, "POST", "/topics/TOPIC", {"records": [{"key": 1}]}, AVRO),
    Row(422, 42202, "POST", "/topics/TOPIC", {"records": [{"value": 1}]}, AVRO),
    Row(422, 42205, "POST", "/topics/TOPIC", {**SCHEMA_RECORD, "value_schema": '"none"'}, AVRO),
    Row(422, 42207, "POST", "/topics/TOPIC", {"records": [{"value": 1}], "value_schema_id": 777}, AVRO),
    Row(200, None, "POST", "/topics/TOPIC/partitions/0", RECORD, BINARY),
    Row(404, 40402, "POST", "/topics/TOPIC/partitions/1", RECORD, BINARY),
    Row(404, 40401, "POST", "/topics/none/partitions/0", RECORD, BINARY),
    Row(200, None, "POST", "/consumers/group", {}),
    Row(409, 40902, "POST", "/consumers/group", {"name": "INSTANCE"}),
    Row(422, 422, "POST", "/consumers/group", {"format": "x"}),
    Row(422, 42204, "POST", "/consumers/group", {"auto.offset.reset": "x"}),
    Row(422, 40001, "POST", "/consumers/group", {"fetch.min.bytes": -5}),
    Row(415, 415, "POST", "/consumers/group", {}, "text/plain"),
    Row(404, 40403, "DELETE", "/consumers/group/instances/none"),
    Row(204, None, "POST", f"{INSTANCE}/subscription", {"topics": ["TOPIC"]}),
    Row(200, None, "GET", f"{INSTANCE}/subscription"),
    Row(409, 40903, "POST", f"{INSTANCE}/subscription", {"topics": ["TOPIC"], "topic_pattern": "x"}),
    Row(409, 40903, "POST", f"{INSTANCE}/assignments", {"partitions": [POSITION]}),
    Row(204, None, "DELETE", f"{INSTANCE}/subscription"),
    Row(409, 40903, "POST", f"{INSTANCE}/positions", {"offsets": [{**POSITION, "offset": 0}]}),
    Row(409, 40903, "POST", f"{INSTANCE}/positions/end", {"partitions": [POSITION]}),
    Row(204, None, "POST", f"{INSTANCE}/assignments", {"partitions": [POSITION]}),
    Row(200, None, "GET", f"{INSTANCE}/assignments"),
    Row(204, None, "POST", f"{INSTANCE}/positions", {"offsets": [{**POSITION, "offset": 0}]}),
    Row(204, None, "POST", f"{INSTANCE}/positions/beginning", {"partitions": [POSITION]}),
    Row(204, None, "POST", f"{INSTANCE}/positions/end", {"partitions": [POSITION]}),
    Row(200, None, "GET", f"{INSTANCE}/records?timeout=50", accept=BINARY),
    Row(406, 40601, "GET", f"{INSTANCE}/records", accept=JSON),
    Row(406, 406, "GET", f"{INSTANCE}/records", accept="text/html"),
    Row(200, None, "POST", f"{INSTANCE}/offsets", {"offsets": [{**POSITION, "offset": 0}]}),
    Row(200, None, "GET", f"{INSTANCE}/offsets", {"partitions": [POSITION]}),
    Row(404, 40402, "GET", f"{INSTANCE}/offsets"),
    Row(404, 40403, "GET", "/consumers/group/instances/none/records"),
    Row(204, None, "DELETE", INSTANCE),
    Row(200, None, "GET", "/brokers"),
    Row(405, 405, "PUT", "/brokers", {}),
    Row(404, 404, "GET", "/none"),
)


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


def test_codes(ottla_broker: Any, registry: StandIn, start_proxy: StartProxy) -> None:
    broker: Ottla = ottla_broker({"auto.create.topics.enable": "false"})
    settings = {"producer.max.block.ms": 300, "schema.registry.url": registry.url, "schema.registry.max.retries": 0}
    proxy = start_proxy({"bootstrap.servers": broker.bootstrap, **settings})
    topic = broker.topic()
    create = {"name": "one", "auto.offset.reset": "earliest"}
    assert proxy.http.post("/consumers/group", json=create).status_code == 200
    wrong = []
    for row in ROWS:
        found = answer_of(proxy, row, topic)
        if found != (row.status, row.code):
            wrong.append((row, found))
    assert not wrong


def answer_of(proxy: RunningProxy, row: Row, topic: str) -> tuple[int, int | None]:
    """The codes of the answer to the request of a row."""
    text = json.dumps(row.body).replace("TOPIC", topic).replace("INSTANCE", "one")
    path = row.path.replace("TOPIC", topic).replace("INSTANCE", "one")
    headers = {"accept": row.accept} | ({"content-type": row.content_type} if row.body is not None else {})
    answer = proxy.http.request(row.method, path, content=None if row.body is None else text, headers=headers)
    body = answer.json() if answer.content else {}
    return answer.status_code, body.get("error_code") if isinstance(body, dict) else None


def test_errors_of_the_cluster_have_their_codes(ottla: Ottla, start_proxy: StartProxy) -> None:
    """50002 and 50003 are in the rows of records; an unreachable cluster is 50302."""
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap})
    values = ["x" * 2_000_000, "ok"]
    rows = [{"value": base64.b64encode(value.encode()).decode()} for value in values] + [{"value": "", "partition": 9}]
    answer = proxy.http.post(f"/topics/{ottla.topic()}", json={"records": rows}, headers={"content-type": BINARY})
    assert [row["error_code"] for row in answer.json()["offsets"]] == [50002, None, 50003]
    lost = start_proxy({"bootstrap.servers": "127.0.0.1:1", "admin.request.timeout.ms": 1000})
    assert lost.http.get("/topics").json()["error_code"] == 50302
