"""Clients that Spark's Python workers keep from one task to the next, since connecting costs more than a small task.

A client is taken out while it is used, so nobody shares one; the idle ones are closed after a while. A forked child
starts with none.
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
"""How long a client is kept without work."""


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


class Kept(Generic[C]):
    """Clients by their settings; `make` makes one."""

    def __init__(self, make: Callable[[Mapping[str, object]], C], idle_s: float = IDLE_S) -> None:
        self._make = make
        self._idle_s = idle_s
        self._idle: dict[tuple[tuple[str, str], ...], list[tuple[float, C]]] = {}
        self._lock = threading.Lock()
        self._looks_later = False
        self._pid = os.getpid()

    @contextmanager
    def client(self, settings: Mapping[str, object]) -> Iterator[C]:
        """A client of these settings, which is closed if the block ends by an exception and kept otherwise."""
        key = tuple(sorted((name, str(value)) for name, value in settings.items()))
        client = self._taken(key)
        if client is None:
            client = self._make(settings)
        try:
            yield client
        except BaseException:
            _end(client)
            raise
        with self._lock:
            self._idle.setdefault(key, []).append((time.monotonic(), client))
            self._look_later()

    def close(self) -> None:
        """Close the clients that are idle now."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for rows in idle.values():
            for _, client in rows:
                _end(client)

    def _taken(self, key: tuple[tuple[str, str], ...]) -> C | None:
        if self._pid != os.getpid():  # the parent's, whose threads are not here
            self._idle, self._lock, self._looks_later, self._pid = {}, threading.Lock(), False, os.getpid()
        with self._lock:
            rows = self._idle.get(key)
            client = rows.pop()[1] if rows else None
            if not rows:
                self._idle.pop(key, None)
        return client

    def _look_later(self) -> None:
        if self._looks_later:
            return
        self._looks_later = True
        timer = threading.Timer(self._idle_s, self._close_old)
        timer.daemon = True
        timer.start()

    def _close_old(self) -> None:
        latest = time.monotonic() - self._idle_s
        old: list[C] = []
        with self._lock:
            self._looks_later = False
            for key, rows in list(self._idle.items()):
                old += [client for since, client in rows if since <= latest]
                self._idle[key] = [row for row in rows if row[0] > latest]
                if not self._idle[key]:
                    del self._idle[key]
            if self._idle:
                self._look_later()
        for client in old:
            _end(client)


def _end(client: _Closes) -> None:
    try:
        client.close()
    except ClientError as error:  # others are to be closed yet, or an error of more worth is on its way
        logger.warning("While a client was closed: %s", error)
