"""Runs plans: sends the requests of each call, round by round, to the cluster."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeVar

from ottla.clients.admin.core import Call, Outcome, Plan, Progress, Round, Send
from ottla.clients.admin.settings import AdminSettings
from ottla.clients.errors import ClientError
from ottla.clients.network import Cluster
from ottla.clients.telemetry import Role, Telemetry

R = TypeVar("R")


class Shell:
    """Runs plans on one cluster. Belongs to the event loop that first uses it."""

    def __init__(self, settings: AdminSettings) -> None:
        self._cluster = Cluster(settings.network)
        if settings.pushes_metrics:
            self._cluster.telemetry = Telemetry(self._cluster, Role("admin.client", dict))
        self._random = random.Random()
        self._request_timeout_s = settings.network.request_timeout_ms / 1000
        self._call_timeout_s = settings.api_timeout_ms / 1000

    @property
    def closed(self) -> bool:
        return self._cluster.closed

    async def close(self) -> None:
        await self._cluster.close()

    async def start(self, timeout_s: float | None) -> None:
        await self._cluster.start(self._call_timeout_s if timeout_s is None else timeout_s)

    async def client_instance_id(self, timeout_s: float) -> str:
        return await self._cluster.client_instance_id(timeout_s)

    async def perform(self, plan: Plan[R], timeout_s: float | None) -> R:
        """Return the plan's result or raise its exception; the deadline is for all of its calls together."""
        limit_s = self._call_timeout_s if timeout_s is None else timeout_s
        deadline_s = asyncio.get_running_loop().time() + limit_s
        outcome: Outcome[Any, Any] | None = None
        while True:
            try:
                call = next(plan) if outcome is None else plan.send(outcome)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            outcome = await self._call(call, deadline_s)

    async def _call(self, call: Call[Any, Any], deadline_s: float) -> Outcome[Any, Any]:
        loop, cluster = asyncio.get_running_loop(), self._cluster
        if not cluster.view.nodes:
            await cluster.start(max(0.001, deadline_s - loop.time()))
        progress: Progress[Any, Any] = Progress(call, deadline_s * 1000, cluster.view.backoff)
        while (now := progress.next_round(cluster.view, loop.time() * 1000, self._random.random())) is not None:
            await self._round(progress, now, deadline_s)
        return progress.outcome

    async def _round(self, progress: Progress[Any, Any], now: Round[Any], deadline_s: float) -> None:
        loop, cluster = asyncio.get_running_loop(), self._cluster
        await asyncio.sleep(now.wait_ms / 1000)
        left_s = max(0.001, deadline_s - loop.time())
        if now.refresh is not None:
            await cluster.refresh(now.refresh, timeout_s=left_s)
        for group in now.forget:
            cluster.forget_coordinator(group, key_type=progress.call.key_type)
        if now.coordinators:
            await asyncio.gather(*(self._find(progress, group, left_s) for group in now.coordinators))
        if now.sends:
            limit_s = min(self._request_timeout_s, left_s)
            await asyncio.gather(*(self._send(progress, send, limit_s) for send in now.sends))

    async def _find(self, progress: Progress[Any, Any], group: str, timeout_s: float) -> None:
        try:
            key_type = progress.call.key_type
            progress.found(group, await self._cluster.coordinator(group, key_type=key_type, timeout_s=timeout_s))
        except ClientError as error:
            progress.not_found(group, error)

    async def _send(self, progress: Progress[Any, Any], send: Send[Any], timeout_s: float) -> None:
        call = progress.call
        try:
            response = await self._cluster.send(
                send.node_id, send.request, oldest=call.version_least, newest=call.version_limit, timeout_s=timeout_s
            )
        except ClientError as error:
            progress.failed(send, error)
        else:
            progress.answered(send, response)
