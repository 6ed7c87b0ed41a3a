"""The path of a request as its segments, with the context of `/contexts/{context}/...` moved to where it belongs.

`/contexts/.staging/subjects/orders` is `/subjects/:.staging:orders`. The router and the authorization use the same
function, so that a path cannot mean one subject for the rights and another for the route.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from ottla.registry.errors import RegistryError, http_error
from ottla.registry.subjects import ALL_CONTEXTS, normalize_context

_SETTINGS = ("config", "mode")


class Path(NamedTuple):
    """The decoded segments of a path. `prefix` begins the names in its context; None without `/contexts/...`."""

    segments: list[str]
    prefix: str | None = None

    def qualified(self, name: str) -> str:
        """Return a name of the query with the context of the path."""
        return name if not self.prefix or _has_context(name) else self.prefix + name


def parse_path(raw_path: bytes) -> Path:
    """Return the segments of a path without its query. Raises RegistryError.

    A slash at the end is ignored. An empty segment elsewhere is an error, since some proxies would remove it: the
    rights of a user must not depend on that.
    """
    segments = [_decode(part) for part in raw_path.partition(b"?")[0].split(b"/")[1:]]
    if segments and not segments[-1]:
        segments.pop()
    if "" in segments:
        raise http_error(404, "Not Found")
    if len(segments) < 2 or segments[0] != "contexts":
        return Path(segments)
    try:
        prefix = normalize_context(segments[1])
    except ValueError as error:
        raise RegistryError(400, 400, str(error)) from error
    return _in_context(segments[2:], prefix)


def _in_context(segments: list[str], prefix: str) -> Path:
    if not segments:
        return Path(["contexts", prefix] if prefix else [], prefix)
    if segments[0] in _SETTINGS and len(segments) == 1 and prefix:
        return Path([*segments, prefix], prefix)
    place = 1 if segments[0] in _SETTINGS else segments.index("subjects") + 1 if "subjects" in segments else 0
    if 0 < place < len(segments) and not _has_context(segments[place]):
        segments[place] = prefix + segments[place]
    return Path(segments, prefix)


def _has_context(name: str) -> bool:
    return name.startswith((":.", ALL_CONTEXTS))


def _decode(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError as error:
        raise RegistryError(400, 400, "The path is not valid UTF-8") from error
