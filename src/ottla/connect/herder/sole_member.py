"""The membership of a standalone worker: it leads, and all work is its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ottla.connect.errors import ConnectError, SignatureError
from ottla.connect.runtime import Assignment, Store, TaskId, WorkListener

logger = logging.getLogger(__name__)


class SoleMember:
    """Implements `Membership`. `start` gives the first assignment; set `listener` before."""

    def __init__(self, store: Store, url: str, worker_id: str) -> None:
        self.listener: WorkListener | None = None
        self._store = store
        self._url = url
        self._worker_id = worker_id
        self._assignment: Assignment | None = None
        self._pending: asyncio.Task[None] | None = None
        self._again = False

    @property
    def worker_id(self) -> str:
        return self._worker_id

    @property
    def assignment(self) -> Assignment | None:
        return self._assignment

    async def start(self) -> None:
        """Take all connectors and tasks of the store."""
        await self._assign()

    def check_leader(self) -> None:
        """Return: this worker leads."""

    def owner_url(self, work: str | TaskId) -> str | None:
        del work
        return self._url

    def rejoin(self, reason: str) -> None:
        """Take what the store has now, soon."""
        logger.debug("Assigning all work again: %s", reason)
        self._again = True
        if self._pending is None:
            self._pending = asyncio.create_task(self._assign_again(), name="assign the work")

    async def ask_leader(self, method: str, path: str, body: object = None) -> None:
        """Raise ConnectError: a worker that leads asks no other one."""
        del body
        raise ConnectError(f"{method} {path}: this worker leads")

    def check_signature(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Raise SignatureError: no other worker sends requests."""
        del body, headers
        raise SignatureError(403, "A standalone worker accepts no requests of other workers")

    async def close(self) -> None:
        """End."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.wait([self._pending])

    async def _assign_again(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._assign()
        finally:
            self._pending = None

    async def _assign(self) -> None:
        names = frozenset(self._store.connectors())
        tasks = frozenset(TaskId(name, each) for name in names for each in range(len(self._store.task_configs(name))))
        generation = 1 if self._assignment is None else self._assignment.generation + 1
        self._assignment = Assignment(generation, self._url, True, names, tasks)
        assert self.listener is not None
        await self.listener.assigned(self._assignment)
