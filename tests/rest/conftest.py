"""A running REST proxy: its real HTTP server in a thread of the test process, in front of a real broker."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from ottla.rest.server import serve_until
from ottla.rest.settings import read_settings
from ottla.testing import Ottla

START_S = 20.0
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"


class RunningProxy:
    """A proxy in a thread, and a client of it."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = read_settings({"listeners": "http://127.0.0.1:0", **settings})
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=self._run, name="rest-proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(START_S), "the proxy did not start"
        self.http = httpx.Client(base_url=self.url, timeout=40)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        def ready(listeners: Any) -> None:
            self.url = listeners[0].address.url
            self._ready.set()

        try:
            self._loop.run_until_complete(serve_until(self._stop, self._settings, ready=ready))
        finally:
            self._loop.close()

    def as_user(self, user: str, password: str) -> httpx.Client:
        """A client with the credentials of a user."""
        return httpx.Client(base_url=self.url, timeout=40, auth=(user, password))

    def stop(self) -> None:
        """Stop the server, as a signal does."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(START_S)

    def close(self) -> None:
        self.http.close()
        self.stop()
        assert not self._thread.is_alive(), "the proxy did not stop"


StartProxy = Callable[..., RunningProxy]


@pytest.fixture
def start_proxy() -> Iterator[StartProxy]:
    """Starts proxies that end with the test."""
    started: list[RunningProxy] = []

    def start(settings: Mapping[str, object]) -> RunningProxy:
        started.append(RunningProxy({"login.failure.delay.ms": 0, **settings}))
        return started[-1]

    yield start
    for proxy in started:
        proxy.close()


@pytest.fixture
def proxy(ottla: Ottla, start_proxy: StartProxy) -> RunningProxy:
    """A proxy in front of the broker `ottla`."""
    return start_proxy({"bootstrap.servers": ottla.bootstrap})


def b64(data: bytes | str) -> str:
    """Base64 as in the format binary."""
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()
