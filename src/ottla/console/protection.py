"""Protection of browsers: headers of answers, the name in the header Host, and requests that other sites forge.

A page of another site can make a browser send requests here. Answers have a Content-Security-Policy without inline
scripts, so text of records cannot become code. The host must be an address, localhost or a configured name: a foreign
name that points here (DNS rebinding) is refused. A POST must come from a page of the console.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_LONGEST_TARGET: Final = 8192


class Protected:
    """An application around another one."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        problem = self._problem(scope)
        app = self._app if problem is None else PlainTextResponse(problem[1], problem[0])
        await app(scope, receive, send_protected)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.is_known(hosts[0]):
            return 421, "The console does not have this name: start it with --host NAME.\n"
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST_TARGET:
            return 414, "The address is too long.\n"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "The console has GET and POST.\n"
        if scope["method"] == "POST" and not is_same_origin(headers):
            return 403, "A page of another site sent this request.\n"
        if is_embedded_elsewhere(headers):
            return 403, "A page of another site contains this address.\n"
        return None

    def is_known(self, host: str) -> bool:
        """Whether a browser may use this name for the console."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name == "localhost" or name in self._hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def is_embedded_elsewhere(headers: Headers) -> bool:
    """Whether a page of another site loads this as a picture, script or frame. A link that a person follows is not."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")


def is_same_origin(headers: Headers) -> bool:
    """Whether the headers of a browser agree that a page of the console sent the request."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
