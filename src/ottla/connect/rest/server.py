"""The REST API on its listeners. They are bound first, so that the address of the worker is known before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.clients.options import SECURITY_OPTIONS, read_options
from ottla.common.failure import Failure
from ottla.connect.herder.herder import Herder
from ottla.connect.rest.access import layered, logins
from ottla.connect.rest.application import Application, Surface
from ottla.connect.rest.forwarding import Forwarding
from ottla.connect.rest.settings import RestSettings
from ottla.network.errors import SecuritySettingError
from ottla.network.tls_settings import tls_context
from ottla.web.guard import BodyLimits
from ottla.web.listeners import CLIENT_AUTHENTICATION, BoundListener, bind_all, tls_config
from ottla.web.server import ServerLimits, serve


class RestServer:
    """The listeners of one worker. `worker` are the settings of the worker. Raises Failure."""

    def __init__(self, settings: RestSettings, worker: Mapping[str, str], *, insecure: bool) -> None:
        self._settings = settings
        self._logins = logins(settings, worker)
        tls, authenticates = tls_config(settings.tls), self._logins is not None
        self._main = bind_all(settings.listeners, tls, authenticates=authenticates, insecure=insecure)
        self._admin: list[BoundListener] = []
        try:
            if not self._main:
                raise Failure("listeners is empty", "Name an address, such as http://127.0.0.1:8083.", exit_code=2)
            if settings.admin_listeners:
                self._admin = bind_all(settings.admin_listeners, tls, authenticates=authenticates, insecure=insecure)
            self.tls = _client_tls(settings, [*self._main, *self._admin])
        except Failure:
            self.close()
            raise
        self.address = settings.advertised(self._main[0].address)
        """The address of this worker for other workers."""

    @property
    def worker_id(self) -> str:
        """The name of this worker in statuses."""
        return f"{self.address.host}:{self.address.port}"

    @property
    def urls(self) -> list[str]:
        """The addresses for users."""
        return [each.address.url for each in self._main]

    async def serve(self, herder: Herder, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Serve until `stop` is set."""
        values = self._settings.values
        timeout_s = self._settings.seconds("rest.request.timeout.ms")
        forwarding = Forwarding(timeout_s, self.tls)
        surface = Surface(
            admin=self._settings.admin_listeners is None,
            topic_tracking=values["topic.tracking.enable"],
            topic_reset=values["topic.tracking.allow.reset"],
        )
        try:
            servers = [self._serve(Application(herder, forwarding, timeout_s, surface), self._main, stop, ready)]
            if self._admin:
                admin = Application(herder, forwarding, timeout_s, Surface(main=False))
                servers.append(self._serve(admin, self._admin, stop, lambda: None))
            async with asyncio.TaskGroup() as group:
                for each in servers:
                    group.create_task(each)
        finally:
            await forwarding.close()

    async def _serve(
        self, app: Application, listeners: Sequence[BoundListener], stop: asyncio.Event, ready: Callable[[], None]
    ) -> None:  # fmt: skip
        values = self._settings.values
        body = BodyLimits(values["rest.request.max.bytes"], self._settings.seconds("rest.request.idle.ms"))
        layers = layered(app, self._settings, self._logins)
        await serve(layers, listeners, stop, ServerLimits(body), access_log=values["access.log"], ready=ready)

    def close(self) -> None:
        """Close the sockets."""
        for each in (*self._main, *self._admin):
            with contextlib.suppress(OSError):
                each.close()


def _client_tls(settings: RestSettings, bound: Sequence[BoundListener]) -> ssl.SSLContext | None:
    """Return the context of requests to other workers: the trust store and the certificate of the listeners."""
    if not any(each.tls is not None for each in bound):
        return None
    skipped = (CLIENT_AUTHENTICATION, "ssl.client.auth", "ssl.principal.mapping.rules")
    given: dict[str, Any] = {name: value for name, value in settings.tls.items() if name not in skipped}
    try:
        return tls_context(read_options(SECURITY_OPTIONS, given))
    except SecuritySettingError as error:
        raise Failure(str(error), exit_code=2) from error
