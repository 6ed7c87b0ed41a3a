"""A running console: its real HTTP server in a thread of the test process, in front of a real broker."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from ottla.console.server import serve_until
from ottla.console.settings import ConsoleSettings

START_S = 20.0


class RunningConsole:
    """A console in a thread, and an HTTP client with cookies as a browser has."""

    def __init__(self, clients: Mapping[str, object], **options: Any) -> None:
        self._settings = ConsoleSettings(
            clients=dict.fromkeys(("admin", "consumer", "producer"), clients),
            listen="127.0.0.1:0",
            failed_login_delay_s=0,
            **options,
        )
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self.url = ""
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._thread.start()
        assert self._ready.wait(START_S), "the console did not start"
        self.http = self.browser()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)

        def ready(listeners: Any) -> None:
            self.url = listeners[0].address.url
            self._ready.set()

        try:
            self._loop.run_until_complete(serve_until(self._stop, self._settings, ready))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def browser(self) -> httpx.Client:
        """A new client without cookies."""
        return httpx.Client(base_url=self.url, timeout=40)

    def json(self, path: str) -> Any:
        """The JSON answer of a page."""
        answer = self.http.get(path, headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self.http.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)
        assert not self._thread.is_alive(), "the console did not stop"


def csrf(http: httpx.Client, path: str = "/topics/new") -> str:
    """The token of the forms of a page."""
    found = re.search(r'name="csrf" value="(\w+)"', http.get(path).text)
    assert found, "the page has no form"
    return found[1]


def post(http: httpx.Client, path: str, token: str | None = None, **fields: str) -> httpx.Response:
    """Send a form as a page of the console does."""
    return http.post(path, data={"csrf": csrf(http) if token is None else token, **fields})


StartConsole = Callable[..., RunningConsole]


@pytest.fixture
def start_console() -> Iterator[StartConsole]:
    """Starts consoles that end with the test."""
    started: list[RunningConsole] = []

    def start(clients: Mapping[str, object], **options: Any) -> RunningConsole:
        started.append(RunningConsole(clients, **options))
        return started[-1]

    yield start
    for console in started:
        console.close()


@pytest.fixture
def ottla(ottla_broker: Callable[..., Any]) -> Any:
    """A broker of the test's own, because pages list all topics."""
    return ottla_broker()


@pytest.fixture
def console(ottla: Any, start_console: StartConsole) -> RunningConsole:
    """A console of the broker `ottla`, without users."""
    return start_console({"bootstrap.servers": ottla.bootstrap})
