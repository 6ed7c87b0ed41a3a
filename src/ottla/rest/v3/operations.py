"""An operation of an HTTP API as a value: the table of operations gives the routes and the OpenAPI document."""

from __future__ import annotations

from typing import NamedTuple

from ottla.rest.calls import Handler


class Operation(NamedTuple):
    """`path` has parameters in braces. `status` is the answer's if it succeeds, `kind` the kind of its resource."""

    method: str
    path: str
    handler: Handler
    summary: str
    kind: str | None = None
    status: int = 200
    body: str | None = None
    """The name of the schema of the request's body, in `ottla.rest.openapi`."""
    query: tuple[str, ...] = ()
