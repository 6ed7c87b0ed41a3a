"""The results and errors of a call of the admin client for several topics, groups or partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.clients import admin as api
from ottla.clients.errors import ClientError


def outcomes(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, Mapping[Any, ClientError]]:
    """Return the results of a call that may fail for some things only, and the errors of those."""
    try:
        return call(*arguments, **options), {}
    except api.PartialFailure as failure:
        return failure.results, failure.errors
