"""The right that each request needs, and filtered listings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.access import Access, Needed, needed
from ottla.registry.records import SchemaKey, SchemaValue, context_record, encode_key, encode_schema
from ottla.registry.rights import Operation, Rights
from ottla.registry.routes import parse_path
from ottla.registry.routes.application import application
from ottla.registry.state import State
from ottla.schemas.model import Schema, SchemaType
from ottla.web.errors import HttpError

READ, WRITE = "Read", "Write"


def right(method: str, path: str) -> Needed:
    return needed(method, parse_path(path.encode()), {"nickname": "target"}.get)


@pytest.mark.parametrize(
    ("method", "path", "operation", "resources"),
    [
        ("GET", "/subjects/a/versions", READ, ("Subject:a",)),
        ("POST", "/subjects/a/versions", WRITE, ("Subject:a",)),
        ("POST", "/subjects/a", READ, ("Subject:a",)),
        ("DELETE", "/subjects/a", WRITE, ("Subject:a",)),
        ("DELETE", "/subjects/a/versions/1", WRITE, ("Subject:a",)),
        ("GET", "/subjects/a%2Fb/versions/latest", READ, ("Subject:a/b",)),
        ("GET", "/subjects/:.:a/versions", READ, ("Subject:a",)),
        ("GET", "/subjects/nickname/versions", READ, ("Subject:nickname", "Subject:target")),
        ("POST", "/contexts/.c/subjects/a/versions", WRITE, ("Subject::.c:a",)),
        ("POST", "/compatibility/subjects/a/versions/latest", READ, ("Subject:a",)),
        ("POST", "/contexts/.c/compatibility/subjects/a/versions", READ, ("Subject::.c:a",)),
        ("GET", "/config", READ, ("Config:",)),
        ("PUT", "/config", WRITE, ("Config:",)),
        ("PUT", "/config/a", WRITE, ("Subject:a",)),
        ("DELETE", "/mode/a", WRITE, ("Subject:a",)),
        ("PUT", "/mode", WRITE, ("Config:",)),
        ("DELETE", "/contexts/.c", WRITE, ("Config:",)),
        ("PUT", "/unknown", WRITE, ("Config:",)),
        ("GET", "/schemas/types", READ, ()),
        ("GET", "/contexts", READ, ()),
        ("GET", "/", READ, ()),
    ],
)
def test_right_of_each_path(method: str, path: str, operation: str, resources: tuple[str, ...]) -> None:
    assert right(method, path) == Needed(Operation(operation), resources)


def test_paths_of_schemas_and_their_listings() -> None:
    assert right("GET", "/schemas/ids/7") == Needed(is_schema=True)
    assert right("GET", "/schemas/ids/7/schema") == Needed(is_schema=True)
    assert right("GET", "/contexts/.c/schemas/ids/7/subjects") == Needed(is_schema=True, is_listing=True)
    assert right("GET", "/schemas/guids/x/ids") == Needed(is_schema=True)


class FakeRegistry:
    """A registry with a schema of the subjects a and b, and others of the subject b, also in a context."""

    cluster_id = group_id = ""

    def __init__(self) -> None:
        self.state = State()
        self.state.apply(*context_record(".c"), 0)
        for offset, (subject, schema_id) in enumerate([("a", 1), ("b", 1), ("b", 2), (":.c:b", 3)]):
            value = SchemaValue(schema_id, Schema(SchemaType.AVRO, f'"{schema_id}"'))
            key = SchemaKey(subject, offset + 1)
            self.state.apply(encode_key(key), encode_schema(subject, offset + 1, value), offset)

    async def change(self, build: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/schemas/ids/1", "", 200),
        ("/schemas/ids/1", "subject=b", 200),
        ("/schemas/ids/2", "", 403),
        ("/schemas/ids/+2", "", 403),
        ("/schemas/ids/02/schema", "", 403),
        ("/schemas/ids/3", "", 404),
        ("/schemas/ids/3", "subject=b", 403),
        ("/contexts/.c/schemas/ids/3", "", 403),
        ("/schemas/ids/4", "", 404),
        ("/schemas/ids/x", "", 404),
        ("/schemas/guids/00000000-0000-0000-0000-000000000000", "", 404),
    ],
)
def test_schema_needs_the_right_for_one_of_its_subjects(path: str, query: str, status: int, rules: Path) -> None:
    if status == 200:
        assert requested(path, query, [], rules) == []
        return
    with pytest.raises(HttpError) as error:
        requested(path, query, [], rules)
    assert error.value.status == status


class Responses:
    """The response of an application."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def body(self) -> Any:
        return json.loads(b"".join(message.get("body", b"") for message in self.messages))


def requested(path: str, query: str, items: list[Any], rules: Path, user: str = "User:ann") -> Any:
    """The response to a request of a user with a certificate."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        assert "limit" not in scope["query_string"].decode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": json.dumps(items).encode()})

    access = Access(app, None, Rights(str(rules)), FakeRegistry())
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
        "state": {} if not user else {"ottla.principal": user},
    }
    responses = Responses()
    asyncio.run(access(scope, None, responses.send))  # type: ignore[arg-type]
    return responses.body


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.json"
    permissions = [{"username": "ann", "operation": "Read", "resource": "Subject:a.*"}]
    path.write_text(json.dumps({"permissions": permissions}))
    return path


def test_listings_have_only_what_the_user_may_read_and_pages_are_full(rules: Path) -> None:
    subjects = ["a1", "b1", "a2", "b2", "a3"]
    assert requested("/subjects", "", subjects, rules) == ["a1", "a2", "a3"]
    assert requested("/subjects", "deleted=true&offset=1&limit=2", subjects, rules) == ["a2", "a3"]
    schemas = [{"subject": "b", "id": 1}, {"subject": "a", "id": 2}]
    assert requested("/schemas", "limit=1", schemas, rules) == [{"subject": "a", "id": 2}]


def test_denied_and_unidentified_users(rules: Path) -> None:
    with pytest.raises(HttpError, match="User is denied operation Read on Subject: b") as denied:
        requested("/subjects/b/versions", "", [], rules)
    assert (denied.value.status, denied.value.error_code) == (403, 40301)
    with pytest.raises(HttpError) as unidentified:
        requested("/subjects", "", [], rules, user="")
    assert unidentified.value.status == 401


@pytest.mark.parametrize(("resource", "status"), [("Subject:a9", 404), ("Subject:.*", 200)])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_search_in_other_contexts_finds_only_what_the_user_may_read(
    method: str, resource: str, status: int, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.json"
    permissions = [{"username": "ann", "operation": "Read", "resource": resource}]
    rules.write_text(json.dumps({"permissions": permissions}))
    registry = FakeRegistry()
    value = SchemaValue(9, Schema(SchemaType.AVRO, '"long"'))
    registry.state.apply(encode_key(SchemaKey(":.c:a9", 1)), encode_schema(":.c:a9", 1, value), 9)
    path = "/subjects/a9" + ("/versions/1" if method == "GET" else "")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {"ottla.principal": "User:ann"},
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps({"schema": '"long"'}).encode()}

    responses = Responses()
    access = Access(application(registry), None, Rights(str(rules)), registry)
    asyncio.run(access(scope, receive, responses.send))
    assert responses.messages[0]["status"] == status
