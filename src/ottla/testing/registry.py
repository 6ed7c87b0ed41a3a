"""A schema registry in this process: a `Node` with its own event loop in its own thread. Needs ottla[registry]."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from ottla.registry.configuration import read_settings
from ottla.registry.server import Node
from ottla.testing.base import STOP_TIMEOUT_S, BrokerError

_START_TIMEOUT_S: Final = 30.0


class RegistryThread:
    """A registry on a free port. `url` is its address after the start."""

    def __init__(self, bootstrap: str, properties: Mapping[str, object] | None = None) -> None:
        self.url = ""
        given = {name: str(value) for name, value in (properties or {}).items()}
        self._settings = read_settings(
            {"kafkastore.bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:0", **given}
        )
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-test-registry", daemon=True)

    def start(self) -> None:
        """Start, and wait until schemas can be registered. Raises BrokerError."""
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            self.close()
            raise BrokerError(f"The registry was not up within {_START_TIMEOUT_S:g} s")
        if self._problem is not None:
            raise BrokerError(f"The registry did not start: {self._problem}") from self._problem

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the start
            self._problem = error
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve(self) -> None:
        await Node(self._settings).run(self._stop, self._announced)

    def _announced(self, urls: list[str]) -> None:
        self.url = urls[0]
        self._ready.set()

    def close(self) -> None:
        """Stop. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(STOP_TIMEOUT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
