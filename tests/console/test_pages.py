"""The pages over HTTP, in front of a real broker: HTML, JSON, commands, searches, changes."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ottla.cli.root import ROOT
from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin import ConfigResource
from ottla.clients.consumer.record import record_class
from ottla.console.masking import Mask
from ottla.console.records import PREVIEW, Decoder, Search, _Scan, text_of
from ottla.console.sessions import Cached

from .conftest import RunningConsole, StartConsole, csrf, post

PAGES = (
    "/",
    "/why?seconds=0",
    "/check",
    "/topics",
    "/topics/new",
    "/topics/orders",
    "/topics/orders/settings",
    "/topics/orders/groups",
    "/topics/orders/alter",
    "/topics/orders/delete",
    "/topics/orders/produce",
    "/topics/orders/messages",
    "/topics/orders/messages?text=record-7&partition=0&offset=2",
    "/topics/orders/messages/0/3",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing",
    "/group/reset?id=billing&target=earliest",
    "/group/delete?id=billing",
    "/group/why?id=billing&seconds=0",
    "/dead-letters",
    "/dead-letters/orders",
    "/dead-letters/orders/redrive",
    "/transactions",
    "/transactions/hanging",
    "/access/users",
    "/access/quotas",
    "/nodes",
    "/nodes/quorum",
    "/nodes/moves",
    "/schemas",
    "/connectors",
)


@pytest.fixture
def filled(ottla: Any, console: RunningConsole) -> RunningConsole:
    """A console of a cluster with 20 records in two partitions, and a group that read some of them."""
    with Admin(ottla.bootstrap) as admin:
        admin.create_topic("orders", partitions=2, config={"retention.ms": "86400000"})
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        for number in range(20):
            value = json.dumps({"text": f"record-{number}"}).encode()
            producer.send("orders", value, b"k%d" % number, partition=number % 2, headers=[("n", b"%d" % number)])
    with Consumer(bootstrap_servers=ottla.bootstrap, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for _ in range(30):
            if consumer.poll(1.0, max_records=6):
                break
        consumer.commit()
    return console


def command_parses(command: str) -> None:
    """Fail if the `ottla` command has an unknown option or lacks an argument."""
    words = shlex.split(command)
    assert words[0] == "ottla"
    context = ROOT.make_context("ottla", words[1:])
    found: Any = ROOT
    rest = [*context._protected_args, *context.args]
    while rest and hasattr(found, "get_command"):
        _, found, rest = found.resolve_command(context, rest)
        context = found.make_context("ottla", rest, parent=context)
        rest = [*context._protected_args, *context.args]


def test_every_page_is_html_and_json_and_names_its_command(filled: RunningConsole) -> None:
    for path in PAGES:
        answer = filled.http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        assert "<h1>" in answer.text
        found = filled.json(path)
        assert isinstance(found, dict), path
        separator = "&" if "?" in path else "?"
        assert filled.http.get(f"{path}{separator}format=json").headers["content-type"] == "application/json"
        if path not in ("/schemas", "/connectors"):
            command_parses(found["command"])
            assert found["command"].split(" -b ")[0].split()[1] in answer.text


def test_overview_states_the_health_in_one_sentence(filled: RunningConsole) -> None:
    found = filled.json("/")
    assert found["severity"] == "ok"
    assert found["health"].startswith("Healthy: 1 broker, ")
    assert found["health"] in filled.http.get("/").text


def test_topic_page_has_partitions_and_settings_that_differ(filled: RunningConsole) -> None:
    found = filled.json("/topics/orders")
    assert [row["records"] for row in found["partitions"]] == [10, 10]
    assert found["overrides"] == {"retention.ms": "86400000"}
    first = filled.json("/topics/orders/settings")["settings"][0]
    assert (first["name"], first["is_default"]) == ("retention.ms", False)
    assert [row["group"] for row in filled.json("/topics/orders/groups")["groups"]] == ["billing"]


def test_topics_have_a_filter_and_pages(ottla: Any, console: RunningConsole) -> None:
    with Admin(ottla.bootstrap) as admin:
        admin.create_topics([f"t-{number:03}" for number in range(120)])
    found = console.json("/topics?page=2")
    assert (found["page"], found["pages"], found["total"]) == (2, 3, 120)
    assert found["topics"][0]["topic"] == "t-050"
    assert [row["topic"] for row in console.json("/topics?filter=T-11&page=9")["topics"]][:2] == ["t-110", "t-111"]
    assert console.http.get("/topics?page=x").status_code == 400


def test_all_topics_are_described_in_one_call(filled: RunningConsole, ottla: Any) -> None:
    with Admin(ottla.bootstrap) as admin:
        found = admin.describe_topics(None)
        assert {name: len(topic.partitions) for name, topic in found.items() if not topic.is_internal} == {"orders": 2}
        resource = ConfigResource.topic("orders")
        assert set(admin.describe_configs([resource], names=["retention.ms"])[resource]) == {"retention.ms"}


def texts(found: dict[str, Any]) -> list[str]:
    return [json.loads(record["value"])["text"] for record in found["records"]]


def test_search_by_partition_offset_time_key_and_text(filled: RunningConsole) -> None:
    base = "/topics/orders/messages"
    assert len(texts(filled.json(base))) == 20
    assert texts(filled.json(f"{base}?partition=1&offset=8")) == ["record-17", "record-19"]
    assert texts(filled.json(f"{base}?key=K7")) == ["record-7"]
    assert texts(filled.json(f"{base}?text=record-13")) == ["record-13"]
    assert texts(filled.json(f"{base}?text=n:%2012")) == ["record-12"]  # a header
    assert len(texts(filled.json(f"{base}?time=2020-01-01T00:00&limit=500"))) == 20
    assert texts(filled.json(f"{base}?time=4102444800000")) == []
    assert filled.http.get(f"{base}?partition=7").status_code == 404
    for wrong in ("offset=-1", "time=yesterday", "limit=x", "at=0", "offset=99999999999999999999", "at=0:1,x:y"):
        assert filled.http.get(f"{base}?{wrong}").status_code == 400, wrong


def test_search_with_a_limit_continues_where_it_ended(filled: RunningConsole) -> None:
    path, found = "/topics/orders/messages?offset=0&limit=6", []
    for _ in range(10):
        page = filled.json(path)
        found += texts(page)
        if not page["next"]:
            break
        path = page["next"]
    assert sorted(found) == sorted(f"record-{number}" for number in range(20))


def test_large_value_is_shortened_with_a_link_to_the_whole(ottla: Any, console: RunningConsole) -> None:
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        producer.send("big", b"x" * 1_000_000, headers=[("h", b"y" * 5_000)]).result(20)
    page = console.http.get("/topics/big/messages").text
    assert len(page) < 20_000
    assert '/topics/big/messages/0/0">… whole value, 1,000,000 bytes' in page
    assert "x" * 1_000_000 in console.http.get("/topics/big/messages/0/0").text
    raw = console.http.get("/topics/big/messages/0/0?raw=value")
    assert (raw.content, raw.headers["content-type"]) == (b"x" * 1_000_000, "application/octet-stream")
    assert raw.headers["content-disposition"].startswith("attachment")
    assert console.http.get("/topics/big/messages/0/1").status_code == 404


def test_search_holds_large_records_as_shortened_rows() -> None:
    topic, values = "t", (b"small", b"x" * 100_000)
    records = [record_class(topic, 0)(offset, offset, b"k", value, []) for offset, value in enumerate(values)]
    scan = _Scan(
        Search(topic, (0,)),
        Decoder(Mask(), None),
        {TopicPartition(topic, 0): 0},
        {TopicPartition(topic, 0): 2},
        newest=True,
    )
    scan.take(records)
    assert [isinstance(each.found, dict) for each in scan.shown()] == [True, False]
    assert [len(row["value"]) for row in scan.rows()] == [PREVIEW, 5]


def test_value_that_was_read_before_a_change_is_not_cached() -> None:
    cached = Cached(lambda: 0.0)

    def read_during_a_change() -> str:
        cached.forget()
        return "before"

    assert cached.get("topics", read_during_a_change, 3.0) == "before"
    assert cached.get("topics", lambda: "after", 3.0) == "after"
    assert cached.get("topics", lambda: "later", 3.0) == "after"


def test_long_json_is_not_parsed_for_a_list() -> None:
    assert text_of(b'{"a": 1}') == ('{"a": 1}', "json")
    assert text_of(b"{no JSON}")[1] == "text"
    assert text_of(b"[" + b" " * 200_000)[1] == "json"


def test_record_is_produced_with_key_headers_and_partition(filled: RunningConsole) -> None:
    answer = post(filled.http, "/topics/orders/produce", key="k", value="hello", headers="a: b\nc:d", partition="1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/orders/messages/1/10?done=produced")
    record = filled.json("/topics/orders/messages/1/10")
    assert (record["key"], record["value"]) == ("k", "hello")
    assert record["headers"] == [{"name": "a", "value": "b"}, {"name": "c", "value": "d"}]
    post(filled.http, "/topics/orders/produce", value="x", tombstone="1", partition="0")
    assert filled.json("/topics/orders/messages/0/10")["value"] is None


def test_topic_is_created_altered_and_deleted_after_a_confirmation(console: RunningConsole) -> None:
    http = console.http
    answer = post(http, "/topics/new", name="fresh", partitions="2", replicas="", config="retention.ms=1000")
    assert answer.headers["location"] == "/topics/fresh?done=created"
    assert "Created." in http.get(answer.headers["location"]).text
    assert post(http, "/topics/new", name="fresh").status_code == 409
    assert post(http, "/topics/new", name="bad name").status_code == 400
    post(http, "/topics/fresh/alter", config="retention.ms=\ncleanup.policy=compact")
    post(http, "/topics/fresh/alter", partitions="3")
    found = console.json("/topics/fresh")
    assert (found["overrides"], found["partition_count"]) == ({"cleanup.policy": "compact"}, 3)
    assert post(http, "/topics/fresh/delete", confirm="fres").status_code == 400
    assert console.json("/topics/fresh")["partition_count"] == 3
    assert post(http, "/topics/fresh/delete", confirm="fresh").status_code == 303
    assert http.get("/topics/fresh").status_code == 404


def test_offsets_are_reset_after_a_preview(filled: RunningConsole) -> None:
    before = filled.json("/group?id=billing")
    assert before["lag"] == 14 or before["lag"] > 0
    preview = filled.json("/group/reset?id=billing&target=offset&to=4")
    assert [row["offset"] for row in preview["plan"]] == [4] * len(preview["plan"])
    assert filled.json("/group?id=billing")["lag"] == before["lag"]  # a preview changes nothing
    answer = post(filled.http, "/group/reset?id=billing", topic="", target="offset", to="4")
    assert answer.status_code == 303
    assert {row["committed"] for row in filled.json("/group?id=billing")["partitions"]} == {4}
    shifted = filled.json("/group/reset?id=billing&target=shift&to=-3")
    assert {row["offset"] for row in shifted["plan"]} == {1}
    assert filled.http.get("/group/reset?id=billing&target=sideways").status_code == 400


def test_group_is_deleted_after_a_confirmation(filled: RunningConsole) -> None:
    assert post(filled.http, "/group/delete?id=billing", confirm="").status_code == 400
    assert post(filled.http, "/group/delete?id=billing", confirm="billing").status_code == 303
    assert filled.http.get("/group?id=billing").status_code in (200, 404)
    assert "billing" not in [row["group"] for row in filled.json("/groups")["groups"]]


def test_new_records_arrive_as_events(ottla: Any, filled: RunningConsole) -> None:
    with filled.http.stream("GET", "/topics/orders/tail?text=fresh") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": begin"
        with Producer(bootstrap_servers=ottla.bootstrap) as producer:
            for value in (b"other", b"fresh one"):
                producer.send("orders", value, partition=0).result(20)
        line = next(line for line in lines if line.startswith("data: "))
        assert json.loads(line.removeprefix("data: "))["value"] == "fresh one"


def test_read_only_console_refuses_every_change(ottla: Any, start_console: StartConsole) -> None:
    ottla.topic("orders")
    console = start_console({"bootstrap.servers": ottla.bootstrap}, read_only=True)
    page = console.http.get("/topics/orders").text
    assert "read-only" in page
    assert "/topics/orders/delete" not in page
    token = console.http.cookies["ottla_console"]
    assert token
    other = start_console({"bootstrap.servers": ottla.bootstrap})
    for path, fields in (
        ("/topics/new", {"name": "t"}),
        ("/topics/orders/delete", {"confirm": "orders"}),
        ("/topics/orders/produce", {"value": "x"}),
    ):
        assert post(console.http, path, token=csrf(other.http), **fields).status_code == 403
        assert console.http.get(path).status_code == 403
    assert [row["topic"] for row in console.json("/topics")["topics"]] == ["orders"]


def test_cluster_that_stopped_is_a_problem_page(start_console: StartConsole) -> None:
    console = start_console({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 1500})
    answer = console.http.get("/topics")
    assert answer.status_code in (503, 504)
    assert "127.0.0.1:1" in answer.text
