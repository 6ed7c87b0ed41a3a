"""The access to the API: who makes a request, and whether the rules allow it. A layer around the routes.

Without authentication, every request is allowed. Otherwise a user is identified by a TLS certificate, or by credentials
that the broker checks. Which right a request needs follows from its path:

- a subject: Read, or Write for registrations, deletes, settings and modes;
- global settings and modes (`/config`, `/mode`): Read or Write of `Config:`;
- a schema by its id or guid: Read of any subject that has it;
- listings: each user sees the subjects that they may read.

Contexts: `/contexts/.c/subjects/s` is the subject `:.c:s`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers

from ottla.registry.errors import RegistryError, schema_not_found
from ottla.registry.logins import BrokerLogins
from ottla.registry.rights import CONFIG, Operation, Rights, subject_resource
from ottla.registry.routes import Path, Registry, parse_path
from ottla.registry.routes.requests import MAY_READ, Request
from ottla.registry.subjects import context_prefix, normalize, qualify
from ottla.web.connection import certificate_principal
from ottla.web.credentials import credentials_of
from ottla.web.errors import HttpError, Unauthenticated
from ottla.web.guard import USER

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SETTINGS: Final = frozenset({"config", "mode"})
_BY_ID: Final = frozenset({"ids", "guids"})
_LISTS_OF_ID: Final = frozenset({"subjects", "versions"})
_LISTS: Final = frozenset({"subjects", "schemas"})
_PAGE: Final = frozenset({"offset", "limit"})


AliasOf: TypeAlias = Callable[[str], str | None]
"""Returns the alias of a subject in its settings."""


class Needed(NamedTuple):
    """The right that a request needs, of all `resources`.

    The path of a schema needs the right to read one of its subjects. A listing is filtered.
    """

    operation: Operation = Operation.READ
    resources: tuple[str, ...] = ()
    is_schema: bool = False
    is_listing: bool = False


def needed(method: str, path: Path, alias_of: AliasOf) -> Needed:
    """Return the right that a request needs."""
    kind, *names = path.segments or [""]
    is_registration = method == "POST" and kind == "subjects" and path.segments[-1] == "versions"
    changes = method in ("PUT", "DELETE") or is_registration
    operation = Operation.WRITE if changes else Operation.READ
    if kind == "compatibility":
        kind, names, operation = "subjects", names[1:], Operation.READ
    if kind == "subjects" and names:
        subject = normalize(names[0])
        # Settings may give a subject another name. The right must be for the subject that the request means.
        subjects = {subject, qualify(subject, alias_of(subject) or subject)}
        return Needed(operation, tuple(sorted(map(subject_resource, subjects))))
    if kind in _SETTINGS:
        return Needed(operation, (subject_resource(normalize(names[0])) if names else CONFIG,))
    if kind == "schemas" and len(names) > 1 and names[0] in _BY_ID:
        return Needed(is_schema=True, is_listing=len(names) > 2 and names[2] in _LISTS_OF_ID)
    if kind in _LISTS and not names:
        return Needed(operation, is_listing=True)
    return Needed(operation, (CONFIG,) if changes else ())


class Access:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        logins: BrokerLogins | None,
        rights: Rights,
        registry: Registry,
        skipped_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._logins = logins
        self._rights = rights
        self._registry = registry
        self._skipped_paths = skipped_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises HttpError."""
        if scope["type"] != "http" or scope["path"] in self._skipped_paths:
            await self._app(scope, receive, send)
            return
        principal = certificate_principal(scope)
        if principal is None and self._logins is not None:
            principal = await self._logins.principal(credentials_of(Headers(scope=scope)))
        if principal is not None:
            scope["state"][USER] = principal
        elif not self._rights.is_unlimited(""):
            raise Unauthenticated(challenges=())
        if principal is None or self._rights.is_unlimited(principal):
            await self._app(scope, receive, send)
            return
        path = _path(scope["raw_path"])
        required = needed(scope["method"], path, self._alias_of)
        for resource in required.resources:
            if not self._rights.allows(principal, required.operation, resource):
                raise _denied(required.operation, resource)
        scope["state"][MAY_READ] = lambda subject: self._may_read(principal, subject)
        if required.is_schema:
            self._check_schema(principal, scope, path)
        if required.is_listing:
            await self._list(principal, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_schema(self, principal: str, scope: Scope, path: Path) -> None:
        """Check the right to read one of the subjects that have a schema. The routes find it in the same way."""
        try:
            owners = self._owners(scope, path)
        except RegistryError as error:
            raise _http_error(error) from error
        if not any(self._rights.allows(principal, Operation.READ, subject_resource(each)) for each in owners):
            raise _denied(Operation.READ, subject_resource(min(owners)))

    def _owners(self, scope: Scope, path: Path) -> set[str]:
        kind, name = path.segments[1:3]
        state = self._registry.state
        if kind == "guids":
            places = state.ids_of_guid(name)
            found = [state.schema_by_id(number, context_prefix(context)) for context, number in places]
        else:
            request = Request(self._registry, scope, _no_body, path, [name])
            found = [state.schema_by_id(request.id(), request.query_subject())]
        owners = {use.subject for each in found if each is not None for use in each[0].uses}
        if not owners:
            raise schema_not_found(name)
        return owners

    def _alias_of(self, subject: str) -> str | None:
        alias = (self._registry.state.settings.stored_config(subject) or {}).get("alias")
        return alias if isinstance(alias, str) else None

    async def _list(self, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application list everything, and return the page of the items that the user may read."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        page = {name: value for name, value in query if name in _PAGE}
        rest = urlencode([(name, value) for name, value in query if name not in _PAGE])
        response = _Response()
        await self._app({**scope, "query_string": rest.encode()}, receive, response.receive)
        if response.start["status"] == 200:
            items = json.loads(response.body)
            visible = [item for item in items if self._may_read(principal, item)]
            response.replace(_page(visible, page))
        await response.send(send)

    def _may_read(self, principal: str, item: Any) -> bool:
        subject = item.get("subject") if isinstance(item, Mapping) else item
        return self._rights.allows(principal, Operation.READ, subject_resource(str(subject)))


def _path(raw_path: bytes) -> Path:
    try:
        return parse_path(raw_path)
    except RegistryError as error:
        raise _http_error(error) from error


def _http_error(error: RegistryError) -> HttpError:
    return HttpError(error.status, error.error_code, error.message)


async def _no_body() -> Message:
    raise AssertionError("the right to a schema does not depend on the body")


class _Response:
    """A response that is collected before it is sent."""

    def __init__(self) -> None:
        self.start: Message = {"status": 500}
        self.body = b""

    async def receive(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.start = message
        else:
            self.body += message.get("body", b"")

    def replace(self, value: Any) -> None:
        self.body = json.dumps(value, separators=(",", ":")).encode()
        headers = [(name, text) for name, text in self.start["headers"] if name != b"content-length"]
        self.start = {**self.start, "headers": [*headers, (b"content-length", str(len(self.body)).encode())]}

    async def send(self, send: Send) -> None:
        await send(self.start)
        await send({"type": "http.response.body", "body": self.body})


def _page(items: list[Any], page: Mapping[str, str]) -> list[Any]:
    offset, limit = _number(page.get("offset"), 0), _number(page.get("limit"), -1)
    items = items[max(offset, 0) :]
    return items[:limit] if limit >= 0 else items


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError as error:
        raise HttpError(404, 404, "HTTP 404 Not Found") from error


def _denied(operation: Operation, resource: str) -> HttpError:
    kind, _, name = resource.partition(":")
    return HttpError(403, 40301, f"User is denied operation {operation} on {kind}: {name}")
