"""Why a group makes no progress, and what is wrong with the cluster, as pages: causes, records, masks."""

from __future__ import annotations

from typing import Any

from ottla.clients import Admin, OffsetAndMetadata, Producer, TopicPartition
from ottla.console.masking import Masks, Rule

from .conftest import RunningConsole, StartConsole


def fill(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("orders")
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(4):
                producer.send("orders", b"<i>%d</i>" % number, b"k")
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(2)})


def test_group_without_members_is_explained(ottla: Any, console: RunningConsole) -> None:
    fill(ottla.bootstrap)
    found = console.json("/group/why?id=billing&seconds=1")
    assert found["findings"][0]["code"] == "no_member"
    (partition,) = found["partitions"]
    assert (partition["position"], partition["lag"], partition["record"]["value"]) == (2, 2, "<i>2</i>")
    assert found["command"].startswith("ottla group why billing --watch 1 ")
    page = console.http.get("/group/why?id=billing&seconds=0").text
    assert "&lt;i&gt;2&lt;/i&gt;" in page
    assert "<i>2" not in page
    assert "/group/why?id=billing" in console.http.get("/group?id=billing").text


def test_records_are_hidden_where_fields_are_masked(ottla: Any, start_console: StartConsole) -> None:
    fill(ottla.bootstrap)
    masks = Masks((Rule(topics=("*",), fields=("value.email",)),))
    console = start_console({"bootstrap.servers": ottla.bootstrap}, masks=masks)
    (partition,) = console.json("/group/why?id=billing&seconds=0")["partitions"]
    assert (partition["record"]["key"], partition["record"]["value"]) == (None, None)


def test_wrong_requests_are_explained(console: RunningConsole) -> None:
    assert console.http.get("/group/why").status_code == 400
    assert console.http.get("/group/why?id=nope&seconds=0").status_code == 404
    for seconds in ("-1", "31", "nan", "1e3"):
        assert console.http.get(f"/group/why?id=nope&seconds={seconds}").status_code == 400


def test_cluster_without_trouble_is_explained(console: RunningConsole) -> None:
    found = console.json("/why?seconds=0")
    assert (found["broker_count"], found["controller"]) == (1, 1)
    assert found["severity"] in ("ok", "info", "warning")
    assert found["command"].startswith("ottla cluster why --watch 0 ")
    assert 'href="/why"' in console.http.get("/").text
