"""The REST proxy of a mirror's target: copies are read as other topics, and refuse writes until their promotion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin
from tests.cluster.processes import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.mirrors import GROUP, PARTITIONS, TOPIC, WAIT_S, committed, mirror, produce, wait_until_copied
from tests.ottla_process import ForkedOttla, OttlaProcess

from .conftest import BINARY, RunningProxy, StartProxy, b64
from .test_consumers import Instance
from .v3.test_resources import cluster

RECORDS = 10
REASON = f"Topic {TOPIC} is read-only: mirror dr copies it from another cluster"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """A source with records, and a target with their copy."""
    with (
        ForkedOttla(tmp_path / "source", TEST_PROPERTIES) as source,
        ForkedOttla(tmp_path / "target", TEST_PROPERTIES) as target,
    ):
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        produce(source.bootstrap, 0, RECORDS)
        mirror(source.bootstrap, target.bootstrap)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, WAIT_S)
        wait_until_copied(source.bootstrap, target.bootstrap)
        yield source, target
        target.assert_no_traceback()


def send(proxy: RunningProxy) -> tuple[int, Any]:
    """Send two records by v2; returns the status and the rows of the answer."""
    rows = [{"value": b64("a"), "partition": 0}, {"value": b64("b"), "partition": 1}]
    answer = proxy.http.post(f"/topics/{TOPIC}", json={"records": rows}, headers={"content-type": BINARY})
    return answer.status_code, answer.json()["offsets"]


def test_copy_is_read_and_refuses_writes_until_the_promotion(
    clusters: tuple[OttlaProcess, OttlaProcess], start_proxy: StartProxy
) -> None:
    _, target = clusters
    proxy = start_proxy({"bootstrap.servers": target.bootstrap})
    topic = f"{cluster(proxy)}/topics/{TOPIC}"

    instance = Instance(proxy.http, GROUP)
    assert instance.post("/subscription", {"topics": [TOPIC]}).status_code == 204
    rows = instance.read(RECORDS)
    assert sorted(row["value"] for row in rows) == sorted(b64(f"{number}") for number in range(RECORDS))
    assert sorted(row["offset"] for row in rows if row["partition"] == 1) == list(range(RECORDS // PARTITIONS))
    assert proxy.http.post(f"{instance.url}/offsets").status_code == 200
    assert committed(target.bootstrap) == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    ends = proxy.http.get(f"/topics/{TOPIC}/partitions/0/offsets").json()
    assert ends == {"beginning_offset": 0, "end_offset": RECORDS // PARTITIONS}

    # Confluent's proxy answers each record with Kafka's exception, here PolicyViolationException.
    status, refused = send(proxy)
    assert (status, [row["error_code"] for row in refused]) == (200, [50002, 50002])
    assert all(REASON in row["error"] for row in refused)
    record = {"value": {"type": "STRING", "data": "a"}}
    answer = proxy.http.post(f"{topic}/records", content=json.dumps(record))
    assert (answer.status_code, answer.json()["error_code"]) == (200, 40002)
    assert REASON in answer.json()["message"]
    settings = {"data": [{"name": "retention.ms", "value": "1000"}]}
    for method, path, body, reason in (
        ("PATCH", topic, {"partitions_count": 5}, "its source has the partitions"),
        ("POST", f"{topic}/configs:alter", settings, "can only be changed at its source"),
        ("PUT", f"{topic}/configs/retention.ms", {"value": "1000"}, "can only be changed at its source"),
        ("DELETE", topic, None, "would create topic orders again"),
    ):
        answer = proxy.http.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), (method, path, answer.text)
        assert reason in answer.json()["message"]

    assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
    status, sent = send(proxy)
    assert (status, [row["error"] for row in sent]) == (200, [None, None])
    # The promotion has written a marker for each producer of the source.
    assert all(row["offset"] > RECORDS // PARTITIONS for row in sent)
    assert sorted(row["value"] for row in instance.read(PARTITIONS)) == [b64("a"), b64("b")]
