"""The API over HTTP and a broker responds as the routes do over the records that the topic has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ottla.clients import Consumer
from ottla.registry.records import Record
from tests.ottla_process import ForkedOttla
from tests.registry_process import RegistryProcess
from tests.unit.registry.routes.test_outcomes import CASES, prepare
from tests.unit.registry.support import Api, MemoryRegistry

pytestmark = pytest.mark.timeout(120)
BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
# Requests that do not change the state. The ids of the clusters differ.
READS = [case for case in CASES if case[0] == "GET" and case[1] != "/v1/metadata/id"]
READS += [case for case in CASES if case[0] == "POST" and not case[1].endswith("/versions")]
READS += [case for case in CASES if case[0] == "POST" and "/compatibility/" in case[1] and case not in READS]


class HttpApi(Api):
    """The API of a process."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self.client = client

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        """Make a request."""
        content = None if body is None else json.dumps(body).encode()
        found = self.client.request(method, path, content=content, headers={"Content-Type": "application/json"})
        return Reply(found.status_code, found.content)


class Reply:
    """A response."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpApi, Api]]:
    """A registry with subjects in all situations, and the routes over a copy of its records."""
    directory = tmp_path_factory.mktemp("registry")
    with (
        ForkedOttla(directory / "broker", BROKER) as broker,
        RegistryProcess(directory / "node", broker.bootstrap) as node,
        httpx.Client(base_url=node.url, timeout=20) as client,
    ):
        over_http = HttpApi(client)
        prepare(over_http)
        registry = MemoryRegistry()
        with Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            partition = ("_schemas", 0)
            consumer.assign([partition])
            end = next(iter(consumer.end_offsets([partition]).values()))
            while consumer.position(partition) < end:
                for item in consumer.poll(0.1):
                    registry.state.apply(item.key, item.value, item.offset, item.timestamp)
                    registry.written.append(Record(item.key or b"", item.value))
        yield over_http, Api(registry)


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), READS)
def test_responses_are_equal(
    both: tuple[HttpApi, Api], method: str, path: str, body: Any, status: int, code: int | None
) -> None:
    over_http, in_process = both
    actual, expected = over_http.request(method, path, body), in_process.request(method, path, body)
    assert actual.status == status
    assert code is None or actual.json["error_code"] == code
    assert actual.body == expected.body


def test_the_topic_has_the_records_of_confluents_registry(both: tuple[HttpApi, Api]) -> None:
    kinds = {json.loads(key)["keytype"] for key, _ in both[1].registry.written}
    assert kinds == {"NOOP", "SCHEMA", "DELETE_SUBJECT", "MODE", "CONFIG", "CONTEXT"}
    assert not both[1].registry.state.skipped
