"""A schema registry in a thread: the resources that serializers and brokers use, in memory, over HTTP.

`hold` lets the requests for schema ids wait, and `refuse` answers them with status 503.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

WAIT_S = 30.0
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class HttpRegistry:
    """Use it as a context manager; `url` is its address."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        self.refuses = False
        self.passes = threading.Event()
        self.passes.set()
        self._lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.authorizations.add(self.headers.get("Authorization"))
                self.answer(*registry.get(urlsplit(self.path).path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = unquote(urlsplit(self.path).path.split("/")[2])
                self.answer(200, registry.register(subject, body))

            def answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            # The handshake is in the thread of the request: a client that fails must not stop the server.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The address."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.passes.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)

    def register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Register a schema, which gets an id unless it has one."""
        with self._lock:
            known = [schema_id for schema_id, each in self.schemas.items() if each["schema"] == body["schema"]]
            schema_id = known[0] if known else len(self.schemas) + 1
            self.schemas.setdefault(schema_id, body)
            ids = self.subjects.setdefault(subject, [])
            if schema_id not in ids:
                ids.append(schema_id)
            return {"id": schema_id, "subject": subject, "version": ids.index(schema_id) + 1, **body}

    def get(self, path: str) -> tuple[int, Any]:
        """Return the status and the body for a GET."""
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if parts[0] == "subjects":
            body = self.schemas[self.subjects[parts[1]][int(parts[3]) - 1]]
            return 200, {"subject": parts[1], "version": int(parts[3]), "id": 0, **body}
        if parts[:2] != ["schemas", "ids"]:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        self.asked.append(path)
        assert self.passes.wait(WAIT_S), "the test never let the request pass"
        if self.refuses:
            return 503, {"error_code": 50301, "message": "the registry is down for a test"}
        schema_id = int(parts[2])
        if schema_id not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
        if len(parts) == 3:
            return 200, self.schemas[schema_id]
        rows = [
            {"subject": subject, "version": ids.index(schema_id) + 1}
            for subject, ids in self.subjects.items()
            if schema_id in ids
        ]
        return 200, rows
