"""A pool of clients that Spark's Python workers reuse between tasks: connecting costs more than a small task.

A client is out of the pool while a task uses it, so tasks never share one. Idle clients are closed after a while, or if
there are too many. A forked child starts with an empty pool, because the threads of the parent's clients do not exist
there.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

from ottla.clients.errors import ClientError

logger = logging.getLogger("ottla.spark")

IDLE_S: Final = 120.0
"""How long an idle client stays open."""
MOST_IDLE: Final = 32


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class ClientPool(Generic[C]):
    """Idle clients by their settings. `make` creates a client."""

    def __init__(self, make: Callable[[Mapping[str, object]], C], idle_s: float = IDLE_S) -> None:
        self._make = make
        self._idle_s = idle_s
        self._idle: dict[tuple[tuple[str, str], ...], list[tuple[float, C]]] = {}
        self._lock = threading.Lock()
        self._timer_runs = False
        self._pid = os.getpid()

    @contextmanager
    def client(self, settings: Mapping[str, object]) -> Iterator[C]:
        """Lend a client with these settings. It is closed if the block raises, and returned to the pool otherwise."""
        key = tuple(sorted((name, str(value)) for name, value in settings.items()))
        client = self._take_idle(key)
        if client is None:
            client = self._make(settings)
        try:
            yield client
        except BaseException:
            _close(client)
            raise
        with self._lock:
            self._idle.setdefault(key, []).append((time.monotonic(), client))
            surplus = self._take_oldest() if sum(map(len, self._idle.values())) > MOST_IDLE else None
            self._start_timer()
        if surplus is not None:
            _close(surplus)

    def close(self) -> None:
        """Close the idle clients."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for rows in idle.values():
            for _, client in rows:
                _close(client)

    def _take_idle(self, key: tuple[tuple[str, str], ...]) -> C | None:
        if self._pid != os.getpid():  # a forked child
            self._idle, self._lock, self._timer_runs, self._pid = {}, threading.Lock(), False, os.getpid()
        with self._lock:
            rows = self._idle.get(key)
            client = rows.pop()[1] if rows else None
            if not rows:
                self._idle.pop(key, None)
        return client

    def _take_oldest(self) -> C:
        key = min(self._idle, key=lambda key: self._idle[key][0][0])
        client = self._idle[key].pop(0)[1]
        if not self._idle[key]:
            del self._idle[key]
        return client

    def _start_timer(self) -> None:
        if self._timer_runs:
            return
        self._timer_runs = True
        timer = threading.Timer(self._idle_s, self._close_expired)
        timer.daemon = True
        timer.start()

    def _close_expired(self) -> None:
        expired_before = time.monotonic() - self._idle_s
        expired: list[C] = []
        with self._lock:
            self._timer_runs = False
            for key, rows in list(self._idle.items()):
                expired += [client for since, client in rows if since <= expired_before]
                self._idle[key] = [row for row in rows if row[0] > expired_before]
                if not self._idle[key]:
                    del self._idle[key]
            if self._idle:
                self._start_timer()
        for client in expired:
            _close(client)


def _close(client: _Closes) -> None:
    try:
        client.close()
    except ClientError as error:  # raising would skip the other clients, or hide the error of a task
        logger.warning("Closing a client failed: %s", error)
