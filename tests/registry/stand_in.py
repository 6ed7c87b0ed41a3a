"""A small registry on real HTTP, in a thread, for tests of clients that need faults of the server.

It has one context and no compatibility checks. `faults` is a list of statuses that the next requests get instead of
their response; None closes the connection without a response.
"""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


class StandIn:
    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.ids: dict[str, int] = {}
        self.faults: list[int | None] = []
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.incompatible: list[str] = []
        self.guids = False
        self.hold: threading.Event | None = None
        """Requests get no response until it is set."""
        self.settings: dict[tuple[str, str], str] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join(10)
        self.server.server_close()

    def answer(self, method: str, parts: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        match method, parts:
            case "POST", ["subjects", subject, "versions"]:
                row = self.register(subject, body)
                return 200, {"id": row["id"]} | ({"guid": row["guid"]} if self.guids else {})
            case "POST", ["subjects", subject]:
                for each in self.subjects.get(subject, []):
                    if each["schema"] == body["schema"]:
                        return 200, each
                code = 40403 if subject in self.subjects else 40401
                return 404, {"error_code": code, "message": f"Subject '{subject}' or its schema not found."}
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["subjects", subject, "versions", version]:
                rows = self.subjects.get(subject, [])
                if rows and version in ("latest", "-1"):
                    return 200, rows[-1]
                found = next((row for row in rows if str(row["version"]) == version), None)
                return (200, found) if found else (404, {"error_code": 40402, "message": "Version not found."})
            case "GET", ["subjects", subject, "metadata"]:
                wanted = dict(zip(query["key"], query["value"], strict=True))
                for row in reversed(self.subjects.get(subject, [])):
                    if wanted.items() <= ((row.get("metadata") or {}).get("properties") or {}).items():
                        return 200, row
                return 404, {"error_code": 40402, "message": "Version not found."}
            case "DELETE", ["subjects", subject]:
                return 200, [row["version"] for row in self.subjects.pop(subject, [])]
            case "DELETE", ["subjects", subject, "versions", version]:
                self.subjects[subject] = [row for row in self.subjects[subject] if str(row["version"]) != version]
                return 200, int(version)
            case "GET", ["schemas", "ids", wanted_id]:
                for row in (each for rows in self.subjects.values() for each in rows):
                    if row["id"] == int(wanted_id):
                        kept = ("schema", "schemaType", "references", "metadata", "ruleSet")
                        return 200, {name: row[name] for name in kept if name in row}
                return 404, {"error_code": 40403, "message": f"Schema {wanted_id} not found"}
            case "GET", ["schemas", "guids", guid]:
                return 200, next(row for rows in self.subjects.values() for row in rows if row["guid"] == guid)
            case "GET", ["subjects", subject, "versions"]:
                return 200, [row["version"] for row in self.subjects.get(subject, [])]
            case _, ["config" | "mode" as what, *subject]:
                return 200, self.setting(method, what, "".join(subject), body)
            case "POST", ["compatibility", *_]:
                return 200, {"is_compatible": not self.incompatible, "messages": self.incompatible}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def setting(self, method: str, what: str, subject: str, body: Any) -> dict[str, Any]:
        name = "compatibility" if what == "config" else "mode"
        if method == "PUT":
            self.settings[what, subject] = body[name]
        elif method == "DELETE":
            self.settings.pop((what, subject), None)
        value = self.settings.get((what, subject), "BACKWARD" if what == "config" else "READWRITE")
        return {"compatibilityLevel" if what == "config" and method == "GET" else name: value}

    def register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        rows = self.subjects.setdefault(subject, [])
        for row in rows:
            if row["schema"] == body["schema"]:
                return row
        known = self.ids.setdefault(json.dumps(body, sort_keys=True), len(self.ids) + 1)
        rows.append({**body, "subject": subject, "version": len(rows) + 1, "id": known})
        if self.guids:
            rows[-1]["guid"] = str(uuid.UUID(int=known))
        return rows[-1]


def _handler(registry: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            registry.requests.append(f"{self.command} {self.path}")
            registry.authorizations.append(self.headers.get("Authorization"))
            split = urlsplit(self.path)
            parts = [unquote(part) for part in split.path.strip("/").split("/")]
            if registry.hold is not None:
                registry.hold.wait(30)
            if registry.faults:
                fault = registry.faults.pop(0)
                if fault is None:
                    self.close_connection = True
                    return
                status, made = fault, {"error_code": fault * 100, "message": "injected"}
            else:
                status, made = registry.answer(self.command, parts, parse_qs(split.query), body)
            content = json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    return Handler
