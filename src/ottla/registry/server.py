"""One node of the registry: its parts joined, from the settings to a stop.

Layers of a request, from the outside: limits (`ottla.web.guard`), access (`access`), 503 until the topic is read, the
routes, forwarding to the primary (`forwarding`). The address is announced when the node has read the topic and taken
part in an election, so that reads and writes work from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.clients.errors import ClientError
from ottla.clients.network import Cluster
from ottla.clients.network_settings import read_network_settings
from ottla.clients.options import COMMON_OPTIONS, SECURITY_OPTIONS, read_options
from ottla.common.failure import Failure
from ottla.network.errors import SecuritySettingError
from ottla.network.tls_settings import tls_context
from ottla.registry.access import Access
from ottla.registry.configuration import RegistrySettings
from ottla.registry.election import Assignment, Election
from ottla.registry.errors import RegistryError
from ottla.registry.forwarding import Forwarding, ForwardingLimits
from ottla.registry.log import SchemaLog
from ottla.registry.logins import BrokerLogins
from ottla.registry.rights import Rights
from ottla.registry.routes import application, parse_path
from ottla.registry.settings import Settings
from ottla.registry.state import State
from ottla.web.errors import HttpError
from ottla.web.guard import BodyLimits
from ottla.web.listeners import CLIENT_AUTHENTICATION, bind_all, tls_config
from ottla.web.server import ServerLimits, serve, stop_signals

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ottla.registry.writer import Build


R = TypeVar("R")

_RETRY_AFTER: Final = {"Retry-After": "1"}


class Registry:
    """The registry behind the routes: the state of this node, and changes on the primary."""

    def __init__(self, log: SchemaLog, group_id: str, cluster_id: str) -> None:
        self._log = log
        self.group_id = group_id
        self.cluster_id = cluster_id

    @property
    def state(self) -> State:
        """The state of this node."""
        return self._log.state

    async def change(self, build: Build[State, R]) -> R:
        """Run `build` on the caught-up state of the primary; see `log.SchemaLog.change`."""
        return await self._log.change(build)


async def run(settings: RegistrySettings, announce: Callable[[list[str]], None]) -> None:
    """Serve until SIGINT or SIGTERM; `announce` receives the addresses. Raises Failure, ClientError."""
    with stop_signals() as stop:
        await Node(settings).run(stop, announce)


class Node:
    """One node. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Bind the listeners. Raises Failure for settings that cannot be used."""
        self._settings = settings
        values = settings.values
        self._logins = BrokerLogins(settings.login) if settings.authenticates else None
        self._rights = Rights(values["ottla_rules_file"], settings.super_users)
        state = State()
        state.settings = Settings(values["schema_compatibility_level"])
        self.log = SchemaLog(settings.log, state)
        self._cluster = Cluster(read_network_settings(read_options(COMMON_OPTIONS, settings.log.clients)))
        self._listeners = bind_all(
            settings.listeners,
            tls_config(settings.tls),
            authenticates=settings.authenticates,
            insecure=values["ottla_insecure"],
        )
        bound = [each.address for each in self._listeners]
        try:
            identity = settings.identity(settings.listener_for_nodes(bound))
        except Failure:
            self._close_listeners()
            raise
        self.election = Election(self._cluster, settings.group, identity, self._changed)
        self.log.term_ended = self.election.rejoin

    def _close_listeners(self) -> None:
        for each in self._listeners:
            each.close()

    async def run(self, stop: asyncio.Event, announce: Callable[[list[str]], None]) -> None:
        """Serve until `stop` is set. Raises Failure."""
        try:
            await self._run(stop, announce)
        finally:
            self._close_listeners()

    async def _run(self, stop: asyncio.Event, announce: Callable[[list[str]], None]) -> None:
        ready = asyncio.Event()
        values = self._settings.values
        async with self._open(stop) as (registry, background):
            if registry is None:
                return
            forwarding = Forwarding(
                _gated(application(registry), self.log, can_change_modes=values["mode_mutability"]),
                self._primary_url,
                ForwardingLimits(values["leader_connect_timeout_ms"] / 1000, values["leader_read_timeout_ms"] / 1000),
                self._tls(),
            )
            app = Access(
                forwarding,
                self._logins,
                self._rights,
                registry,
                frozenset(values["authentication_skip_paths"]),
            )
            limits = ServerLimits(BodyLimits(values["size_limit_filter_max_request_body_size"]))
            serving = asyncio.create_task(
                serve(app, self._listeners, stop, limits, access_log=values["ottla_access_log"], ready=ready.set)
            )
            announcing = asyncio.create_task(self._announce(ready, announce))
            try:
                await asyncio.wait([serving, *background], return_when=asyncio.FIRST_COMPLETED)
            finally:
                announcing.cancel()
                stop.set()
                await serving
                await forwarding.close()
            for task in background:
                if task.done():
                    task.result()

    async def _announce(self, ready: asyncio.Event, announce: Callable[[list[str]], None]) -> None:
        await ready.wait()
        await self.log.loaded.wait()
        await self.election.joined.wait()
        announce([each.address.url for each in self._listeners])

    @contextlib.asynccontextmanager
    async def _open(self, stop: asyncio.Event) -> AsyncIterator[tuple[Registry | None, list[asyncio.Task[None]]]]:
        """Read the topic and take part in the election, until the end of the block. None: stopped before.

        The tasks end only with an error.
        """
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(stop.wait())
        elections: asyncio.Task[None] | None = None
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                yield None, []
                return
            registry, reader = starting.result()
            elections = asyncio.create_task(self._elect(), name="elect the primary of the registry")
            yield registry, [reader, elections]
        finally:
            tasks = [task for task in (starting, stopping, elections) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.election.leave()
            await self.log.close()
            self.log.state.comparisons.close()
            await self._cluster.close()

    async def _start(self) -> tuple[Registry, asyncio.Task[None]]:
        settings = self._settings
        try:
            reader = await self.log.start()
        except ClientError as error:
            raise Failure(f"the registry cannot use the brokers: {error}") from error
        return Registry(self.log, settings.group.group_id, self.log.cluster_id), reader

    async def _elect(self) -> None:
        # A node that has not read the topic would delay the writes of all.
        await self.log.loaded.wait()
        await self.election.run()

    async def _changed(self, _assignment: Assignment, is_primary: bool) -> None:
        await (self.log.lead() if is_primary else self.log.follow())

    def _primary_url(self) -> str | None:
        assignment = self.election.assignment
        if assignment is None or assignment.primary is None or self.election.is_primary:
            return None
        return assignment.primary.url

    def _tls(self) -> ssl.SSLContext | None:
        """Return the context of connections to the primary: the trust store and the certificate of the listeners."""
        if not any(each.tls is not None for each in self._listeners):
            return None
        given: dict[str, Any] = {
            name: value
            for name, value in self._settings.tls.items()
            if name.startswith(("ssl.keystore", "ssl.truststore", "ssl.key.")) and name != CLIENT_AUTHENTICATION
        }
        try:
            return tls_context(read_options(SECURITY_OPTIONS, given))
        except SecuritySettingError as error:
            raise Failure(str(error), exit_code=2) from error


def _gated(app: ASGIApp, log: SchemaLog, *, can_change_modes: bool) -> ASGIApp:
    """Respond with 503 until the topic is read: a client must not take a schema for unknown."""

    def changes_mode(scope: Scope) -> bool:
        try:
            segments = parse_path(scope["raw_path"]).segments
        except RegistryError:  # the routes respond
            return False
        return scope["method"] in ("PUT", "DELETE") and segments[:1] == ["mode"]

    async def gated(scope: Scope, receive: Receive, send: Send) -> None:
        if not log.loaded.is_set():
            raise HttpError(503, 50302, "The registry reads its topic; retry later", _RETRY_AFTER)
        if not can_change_modes and changes_mode(scope):
            raise HttpError(422, 42205, "Mode changes are not allowed")
        await app(scope, receive, send)

    return gated
