"""The API over a state with a log in memory: the state, the changes and the routes are the real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ottla.registry.records import Record
from ottla.registry.routes import application
from ottla.registry.state import State

R = TypeVar("R")


class MemoryRegistry:
    """A registry whose records are a list. `written` has them in the order of their offsets."""

    cluster_id = "the-cluster"
    group_id = "schema-registry"

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.state = State()
        self.written: list[Record] = []
        self.append(records)

    def append(self, records: Sequence[Record]) -> None:
        """Write records and apply them."""
        for record in records:
            self.state.apply(record.key, record.value, len(self.written), 1_700_000_000_000 + len(self.written))
            self.written.append(record)

    async def change(self, build: Callable[[State], tuple[list[Any], R]]) -> R:
        """Run a change and write its records."""
        records, result = build(self.state)
        self.append(records)
        return result


class Response(NamedTuple):
    """A response of the application."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, int]:
        """The status and the error code."""
        return self.status, self.json["error_code"]


class Api:
    """Calls the application without a network."""

    def __init__(self, registry: MemoryRegistry | None = None) -> None:
        self.registry = registry or MemoryRegistry()
        self._app = application(self.registry)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Response:
        """Make a request; `raw` is a body as bytes."""
        return asyncio.run(self.ask(method, path, body, headers=headers, raw=raw))

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Response:
        """Make a request; see `request`."""
        data = json.dumps(body).encode() if raw is None and body is not None else raw or b""
        raw_path, _, query = path.partition("?")
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": raw_path,
            "raw_path": quote(raw_path, safe="/:%.*~").encode(),
            "query_string": quote(query, safe="=&%:*.,/").encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        await self._app(scope, receive, send)  # type: ignore[arg-type]
        start, end = sent
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], named, end["body"])

    def get(self, path: str, **options: Any) -> Response:
        """GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Response:
        """POST."""
        return self.request("POST", path, body, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Response:
        """PUT."""
        return self.request("PUT", path, body, **options)

    def delete(self, path: str, **options: Any) -> Response:
        """DELETE."""
        return self.request("DELETE", path, **options)

    def register(self, subject: str, schema: Any, **fields: Any) -> int:
        """Register an Avro schema and return its id."""
        response = self.post(f"/subjects/{subject}/versions", {"schema": json.dumps(schema), **fields})
        assert response.status == 200, response.body
        identity: int = response.json["id"]
        return identity


def record(name: str = "R", *fields: str, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return an Avro record with fields of strings, some of which have a default."""
    named: list[dict[str, Any]] = [{"name": field, "type": "string"} for field in fields]
    named += [{"name": field, "type": "string", "default": ""} for field in optional]
    return {"type": "record", "name": name, "fields": named}
