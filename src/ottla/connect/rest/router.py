"""Paths and methods. A path is matched by its decoded segments, so that a name may have any characters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from ottla.connect.herder.herder import Herder
from ottla.connect.rest.requests import Request
from ottla.web.errors import HttpError


class Reply(NamedTuple):
    """The response of an operation: a value for JSON, None: no body. `place` is the path for the header Location."""

    value: Any = None
    status: int = 200
    place: str = ""


class Operation(NamedTuple):
    """The herder, and the request to it."""

    herder: Herder
    request: Request


Handler: TypeAlias = Callable[[Operation], Awaitable[Reply]]


class Route(NamedTuple):
    """A method, a path whose parameters are `{}`, and the handler."""

    method: str
    path: str
    handler: Handler


_WITHOUT_ALLOW_ORDER: Final = ("HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT", "PATCH")


class Router:
    """Finds the handlers of a path."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._table: dict[tuple[str, ...], dict[str, Handler]] = {}
        for route in routes:
            key = tuple(route.path.strip("/").split("/"))
            self._table.setdefault(key, {})[route.method] = route.handler

    def find(self, segments: Sequence[str]) -> tuple[Mapping[str, Handler], list[str]]:
        """Return the handlers of a path by method, and its parameters. The handlers are empty without a match."""
        for key, handlers in self._table.items():
            if len(key) == len(segments) and all(
                part in ("{}", given) for part, given in zip(key, segments, strict=True)
            ):
                return handlers, [given for part, given in zip(key, segments, strict=True) if part == "{}"]
        return {}, []


def segments_of(raw_path: bytes) -> list[str]:
    """Return the decoded segments of a path. Raises HttpError."""
    try:
        text = raw_path.partition(b"?")[0].strip(b"/")
        return [unquote_to_bytes(each).decode() for each in text.split(b"/")]
    except UnicodeDecodeError as error:
        raise HttpError(400, 400, "The path is not UTF-8") from error


def allowed(handlers: Mapping[str, Handler]) -> list[str]:
    """Return the methods of a path, with those that exist for each path, in the order of Kafka Connect."""
    known = {*handlers, "OPTIONS", *(["HEAD"] if "GET" in handlers else [])}
    return [each for each in _WITHOUT_ALLOW_ORDER if each in known]
