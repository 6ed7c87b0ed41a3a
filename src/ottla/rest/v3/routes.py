"""The paths of v3, from the tables of operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.routing import Route

from ottla.rest.calls import Endpoint, Proxy
from ottla.rest.v3 import acls, clusters, configs, groups, records, topics
from ottla.rest.v3.operations import Operation

# Paths with a literal "-" come before paths with a parameter in its place; the most used first.
OPERATIONS: Final[tuple[Operation, ...]] = (
    *records.OPERATIONS,
    *(each for each in configs.OPERATIONS if "/-/" in each.path),
    *topics.OPERATIONS,
    *clusters.OPERATIONS,
    *configs.OPERATIONS,
    *groups.OPERATIONS,
    *acls.OPERATIONS,
)
PREFIXES: Final = ("/v3", "/kafka/v3")


def routes(proxy: Proxy) -> list[Route]:
    """Return the routes of v3."""
    return [
        Route(prefix + each.path, Endpoint(proxy, each.handler), methods=[each.method])
        for prefix in PREFIXES
        for each in dict.fromkeys(OPERATIONS)
    ]


def is_stream(scope: Mapping[str, Any]) -> bool:
    """Whether the body of a request is a stream, which has no limit as a whole."""
    # The decoded path of a name that ends with an encoded slash and "records" looks the same.
    return bool(scope["path"].endswith("/records")) and not scope["raw_path"].lower().endswith(b"%2frecords")
