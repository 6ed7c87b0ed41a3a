"""Clients that register schemas at several nodes, and the responses that they received."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import httpx

CONTENT_TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
TIMEOUT_S = 30.0


def schema_text(name: str) -> str:
    """A schema that no other name has; all of them are compatible."""
    fields = [{"name": name, "type": "int", "default": 0}]
    return json.dumps({"type": "record", "name": "R", "fields": fields}, separators=(",", ":"))


def register(client: httpx.Client, url: str, subject: str, text: str) -> int:
    """Register a schema and return its id. Raises httpx.HTTPError."""
    response = client.post(f"{url}/subjects/{subject}/versions", json={"schema": text}, headers=CONTENT_TYPE)
    response.raise_for_status()
    return int(response.json()["id"])


class Registrations:
    """Threads that register distinct schemas, each at the nodes in turn, until the end of the block."""

    def __init__(self, urls: Sequence[str], threads: int) -> None:
        self._urls = urls
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        self._end = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[str, tuple[str, int]] = {}
        """The subject and the id of each schema that was acknowledged."""
        self.failures: list[str] = []

    def _run(self, thread: int) -> None:
        number = 0
        with httpx.Client(timeout=TIMEOUT_S) as client:
            while not self._end.is_set():
                number += 1
                url = self._urls[(thread + number) % len(self._urls)]
                subject, text = f"subject-{thread}-{number % 7}", schema_text(f"Schema_{thread}_{number}")
                try:
                    schema_id = register(client, url, subject, text)
                except httpx.HTTPError as error:
                    with self._lock:
                        self.failures.append(f"{url}: {error!r}")
                    time.sleep(0.02)
                    continue
                with self._lock:
                    self.acknowledged[text] = (subject, schema_id)

    @property
    def count(self) -> int:
        """The number of acknowledged schemas."""
        with self._lock:
            return len(self.acknowledged)

    def wait_for(self, more: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until that many more schemas are acknowledged."""
        wanted, deadline = self.count + more, time.monotonic() + timeout_s
        while self.count < wanted:
            assert time.monotonic() < deadline, f"{self.count} of {wanted}; {self.failures[-5:]}"
            time.sleep(0.02)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
            assert not thread.is_alive()

    def check(self, urls: Sequence[str], schemas_of: Callable[[], list[tuple[int, str]]]) -> None:
        """Each acknowledged schema is on each node, and no id ever belonged to two schemas in the topic."""
        assert self.acknowledged
        ids = {schema_id for _, schema_id in self.acknowledged.values()}
        assert len(ids) == len(self.acknowledged), "two acknowledged schemas have one id"
        by_id: dict[int, str] = {}
        for schema_id, text in schemas_of():
            assert by_id.setdefault(schema_id, text) == text, f"the id {schema_id} was used twice"
        for text, (_, schema_id) in self.acknowledged.items():
            assert by_id.get(schema_id) == text, f"the schema {schema_id} is lost"
        with httpx.Client(timeout=TIMEOUT_S) as client:
            for url in urls:
                wait_until(lambda url=url: self._is_complete(client, url))

    def _is_complete(self, client: httpx.Client, url: str) -> bool:
        listed = client.get(f"{url}/schemas").json()
        known = {item["id"]: item["schema"] for item in listed}
        return all(known.get(schema_id) == text for text, (_, schema_id) in self.acknowledged.items())


def wait_until(condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@contextlib.contextmanager
def http() -> Iterator[httpx.Client]:
    """A client without a proxy."""
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client:
        yield client
