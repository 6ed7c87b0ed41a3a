"""`ottla mcp` as a process, called by the official client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import Acl, AclOperation, AclResource
from ottla.console.masking import MASKED
from ottla.mcp_server.answers import LONGEST_TEXT, MOST_BYTES, answer_text
from ottla.mcp_server.tools import TOOLS, Parameter, ToolError, sentence

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

    Use = Callable[[Client], Awaitable[None]]

# The tests import `mcp` themselves: it takes half a second in each worker that collects the tests.
DEADLINE_S = 100.0
MASKS = """
[[mask]]
topics = ["orders"]
except = ["test"]
fields = ["value.email"]
headers = ["token"]
"""


def talk(use: Use, *words: str) -> None:
    """Start `ottla mcp`, and let a client use it."""
    from mcp import Client, StdioServerParameters

    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "ottla.cli.main", "mcp", "--log-level", "warning", *words], env=environment
    )

    async def session() -> None:
        async with asyncio.timeout(DEADLINE_S), Client(server, read_timeout_seconds=DEADLINE_S) as client:
            await use(client)

    asyncio.run(session())


async def call(client: Client, tool: str, **arguments: object) -> CallToolResult:
    from mcp_types import CallToolResult

    found = await client.call_tool(tool, arguments)
    assert isinstance(found, CallToolResult)
    return found


async def data(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    """The answer of a tool."""
    found = await call(client, tool, **arguments)
    assert not found.is_error, found
    answer = json.loads(text(found))
    assert isinstance(answer, dict)
    return answer


async def problem(client: Client, tool: str, **arguments: object) -> str:
    """The error of a tool."""
    found = await call(client, tool, **arguments)
    assert found.is_error, found
    return text(found)


def text(found: CallToolResult) -> str:
    (content,) = found.content
    return str(getattr(content, "text", None))


def fill(settings: Mapping[str, object]) -> None:
    """Write ten records into `orders`, of which the group `billing` has read some."""
    with Admin(settings) as admin:
        admin.create_topics(["orders", "other"])
    with Producer(settings) as producer:
        for number in range(10):
            value = json.dumps({"number": number, "email": "eve@example.org"}).encode()
            producer.send("orders", value, b"k%d" % number, headers=[("token", b"s3cret")])
        producer.send("other", b"x" * 200_000).result(20)
    with Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        while not consumer.poll(1.0, max_records=4):
            pass
        consumer.commit()


def test_tools_answer_about_a_cluster(ottla_broker: Any, tmp_path: Path) -> None:
    broker = ottla_broker()
    fill({"bootstrap.servers": broker.bootstrap})
    masks = tmp_path / "masks.toml"
    masks.write_text(MASKS)

    async def use(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == set(TOOLS)
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in listed)
        assert (await data(client, "cluster"))["health"].startswith("Healthy")
        assert (await data(client, "cluster_why", seconds=0))["broker_count"] == 1
        checks = (await data(client, "check"))["checks"]
        assert {"code", "severity", "next_step"} <= set(checks[0])
        topics = await data(client, "topics", filter="ord")
        assert [row["topic"] for row in topics["topics"]] == ["orders"]
        assert topics["command"].startswith("ottla topic list")
        assert (await data(client, "topic", topic="orders"))["records"] == 10
        assert (await data(client, "topic_groups", topic="orders"))["groups"][0]["group"] == "billing"
        assert (await data(client, "groups"))["groups"][0]["group"] == "billing"
        lag = await data(client, "lag", group="billing")
        assert lag["lag"] == 10 - lag["partitions"][0]["committed"]
        assert (await data(client, "group_why", group="billing", seconds=0))["group"] == "billing"
        assert (await data(client, "dead_letter_topics"))["topics"] == []
        await search(client)

    async def search(client: Client) -> None:
        found = await data(client, "search_messages", topic="orders", text='"number": 7')
        (record,) = found["records"]
        assert json.loads(record["value"]) == {"number": 7, "email": MASKED}
        assert record["headers"] == [{"name": "token", "value": MASKED}]
        # A search must not reveal a masked field.
        assert (await data(client, "search_messages", topic="orders", text="eve@"))["records"] == []
        first = await data(client, "search_messages", topic="orders", offset=0, limit=6)
        rest = await data(client, "search_messages", topic="orders", at=first["at"])
        assert [row["offset"] for row in (*first["records"], *rest["records"])] == list(range(10))
        whole = await data(client, "message", topic="orders", partition=0, offset=3)
        assert (whole["key"], json.loads(whole["value"])["email"]) == ("k3", MASKED)
        large = text(await call(client, "message", topic="other", partition=0, offset=0))
        assert len(large) < 2 * LONGEST_TEXT
        assert "200,000 characters" in large
        assert "x" * 10_000 not in large

    talk(use, "-b", broker.bootstrap, "--mask", str(masks))


def test_errors_are_one_sentence(ottla_broker: Any) -> None:
    broker = ottla_broker()

    async def use(client: Client) -> None:
        for tool, arguments, expected in (
            ("topic", {"topic": "missing"}, "missing"),
            ("topic", {}, "topic needs topic: the name of a topic."),
            ("topic", {"topic": "../x"}, "cannot be a topic"),
            ("topic", {"topic": 7}, "topic must be of the type string."),
            ("topics", {"page": -1}, "page is -1, but must be from 0 to 1,000,000."),
            ("topics", {"wrong": 1}, "topics has no parameter 'wrong'"),
            ("search_messages", {"topic": "t", "limit": 10_000}, "limit is 10000, but must be from 0 to 100."),
            ("schemas", {}, "This console has no schema registry; start `ottla mcp` with --registry URL."),
            ("delete_topic", {"topic": "t"}, "'delete_topic' is not a tool"),
        ):
            found = await problem(client, tool, **arguments)
            assert expected in found
            assert found.endswith(".")
            assert "\n" not in found

    talk(use, "-b", broker.bootstrap, "-X", "request.timeout.ms=20000")


def test_acls_of_the_configured_user_decide(ottla_broker: Any, tmp_path: Path) -> None:
    broker = ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:test",
        },
        security="SASL_PLAINTEXT",
        users=["test", "ann"],
    )
    settings = broker.settings("ottla", user="test")
    fill(settings)
    with Admin(settings) as admin:
        topic = AclResource.topic("orders")
        admin.create_acls([Acl(topic, "User:ann", each) for each in (AclOperation.READ, AclOperation.DESCRIBE)])
    path, masks = tmp_path / "client.properties", tmp_path / "masks.toml"
    masks.write_text(MASKS)

    def as_user(name: str, use: Use) -> None:
        given = broker.settings("ottla", user=name)
        path.write_text("".join(f"{key}={value}\n" for key, value in given.items() if key != "bootstrap.servers"))
        path.chmod(0o600)
        talk(use, "-b", broker.bootstrap, "--command-config", str(path), "--mask", str(masks))

    async def ann(client: Client) -> None:
        assert [row["topic"] for row in (await data(client, "topics"))["topics"]] == ["orders"]
        for tool in ("topic", "search_messages"):
            assert "other" in await problem(client, tool, topic="other")
        assert MASKED in (await data(client, "search_messages", topic="orders"))["records"][0]["value"]

    async def test(client: Client) -> None:
        assert len((await data(client, "topics"))["topics"]) == 2
        # The rule of the mask excepts this user.
        assert "eve@" in (await data(client, "search_messages", topic="orders"))["records"][0]["value"]

    as_user("ann", ann)
    as_user("test", test)


def test_large_answers_are_shortened() -> None:
    found = answer_text({"topic": "t", "partitions": [{"text": "x" * 100}] * 5_000, "few": [1, 2]})
    assert len(found) <= MOST_BYTES
    content = json.loads(found)
    assert content["shortened"] == {"partitions": 5_000}
    assert content["few"] == [1, 2]
    assert "error" in json.loads(answer_text({str(number): "x" * LONGEST_TEXT for number in range(20)}))


def test_calls_without_an_answer_do_not_hold_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp import Client

    from ottla.mcp_server import serving

    end, started = threading.Event(), list[str]()

    def run(_: object, __: object, name: str, ___: object) -> dict[str, Any]:
        started.append(name)
        if len(started) <= serving._AT_ONCE:
            assert end.wait(DEADLINE_S)
        return {}

    monkeypatch.setattr(serving, "run", run)
    unused: Any = None

    async def session() -> None:
        async with asyncio.timeout(DEADLINE_S), Client(serving.server_of(unused, unused)) as client:
            with monkeypatch.context() as short:
                short.setattr(serving, "_MOST_S", 0.2)
                while len(started) < serving._AT_ONCE:
                    assert "did not answer" in await problem(client, "cluster")
            assert "The server is busy" in await problem(client, "cluster")
            end.set()
            while (await call(client, "cluster")).is_error:
                await asyncio.sleep(0.05)

    try:
        asyncio.run(session())
    finally:
        end.set()


def test_arguments_and_sentences() -> None:
    assert Parameter("internal", "", "boolean").text(value=True) == "1"
    for kind, value in (("integer", True), ("integer", "1"), ("boolean", 1), ("string", "x" * 1_001)):
        with pytest.raises(ToolError):
            Parameter("p", "", kind).text(value)  # type: ignore[arg-type]
    assert sentence("Two\n lines.", "Do this.") == "Two lines; Do this."


def test_no_tool_reaches_a_page_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    modules = {tool.page.__module__.rpartition(".")[2] for tool in TOOLS.values()}
    assert not {name for name in modules if name.endswith(("changes", "reset"))}
    names = {tool.page.__name__ for tool in TOOLS.values()}
    assert not names & {"create", "alter", "delete", "produce", "abort", "redrive"}
