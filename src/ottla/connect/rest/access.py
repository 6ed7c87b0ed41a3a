"""The outer layers of the API: users log in, pages of other origins may read answers, and extra headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from ottla.clients.options import COMMON_OPTIONS
from ottla.common.failure import Failure
from ottla.connect.rest.application import internal_path
from ottla.connect.rest.router import segments_of
from ottla.connect.rest.settings import RestSettings
from ottla.registry.logins import BrokerLogins, LoginSettings
from ottla.web.credentials import credentials_of
from ottla.web.guard import USER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_COMMON: Final = frozenset(name for each in COMMON_OPTIONS for name in (each.name, *each.aliases))


def logins(settings: RestSettings, worker: Mapping[str, str]) -> BrokerLogins | None:
    """Return the check of users, which log in at the brokers of the worker; None without. Raises Failure."""
    if not settings.methods:
        return None
    if not worker.get("security.protocol", "PLAINTEXT").upper().startswith("SASL"):
        raise Failure(
            "authentication.method: users log in at the brokers with SASL, but the security protocol of the worker is"
            f" {worker.get('security.protocol', 'PLAINTEXT')}",
            "Set security.protocol and bootstrap.servers to a listener with SASL.",
            exit_code=2,
        )
    clients = {name: value for name, value in worker.items() if name in _COMMON}
    own = worker.get("sasl.mechanism", "").upper()
    mechanism = settings.values["authentication.mechanism"] or (own if own in _PASSWORDS else "SCRAM-SHA-512")
    return BrokerLogins(LoginSettings(clients, settings.methods, mechanism))


class Access:
    """An ASGI application that lets only users with valid credentials through.

    `/` and `/health` need none, as health checks have none; requests of other workers are signed.
    """

    def __init__(self, app: ASGIApp, checks: BrokerLogins) -> None:
        self._app = app
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises HttpError."""
        segments = segments_of(scope["raw_path"])
        is_open = segments in ([""], ["health"]) or internal_path(scope["method"], segments)
        if not is_open and scope["method"] != "OPTIONS":
            principal = await self._checks.principal(credentials_of(Headers(scope=scope)))
            scope.setdefault("state", {})[USER] = principal
        await self._app(scope, receive, send)


def layered(app: ASGIApp, settings: RestSettings, checks: BrokerLogins | None) -> ASGIApp:
    """Return the application with its outer layers."""
    if checks is not None:
        app = Access(app, checks)
    origins = [each.strip() for each in settings.values["access.control.allow.origin"].split(",") if each.strip()]
    if origins:
        given = settings.values["access.control.allow.methods"]
        methods = [each.strip() for each in given.split(",") if each.strip()] or ["GET", "POST", "HEAD"]
        headers = ["X-Requested-With", "Content-Type", "Accept", "Origin", "Authorization"]
        app = CORSMiddleware(app, allow_origins=origins, allow_methods=methods, allow_headers=headers)
    return _with_headers(app, settings.response_headers) if settings.response_headers else app


def _with_headers(app: ASGIApp, pairs: tuple[tuple[str, str], ...]) -> ASGIApp:
    extra = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await app(scope, receive, send_more)

    return call
