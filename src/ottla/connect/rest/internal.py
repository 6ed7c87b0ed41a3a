"""Requests between the workers of a group, which are signed (KIP-507): task configurations, and fencing (KIP-618)."""

from __future__ import annotations

from typing import Final

from ottla.connect.errors import BadRequestError
from ottla.connect.rest.requests import config_of
from ottla.connect.rest.router import Operation, Reply, Route


async def put_tasks(call: Operation) -> Reply:
    """Write task configurations for a worker that does not lead."""
    call.herder.membership.check_signature(call.request.body, call.request.headers)
    rows = call.request.json()
    if not isinstance(rows, list):
        raise BadRequestError("The body must be an array of configurations")
    configs = [config_of(each, "each element") for each in rows]
    await call.herder.put_task_configs(
        call.request.name, [{name: each for name, each in config.items() if each is not None} for config in configs]
    )
    return Reply(status=204)


async def fence(call: Operation) -> Reply:
    """Fence older tasks of an exactly-once source for a worker that does not lead."""
    call.herder.membership.check_signature(call.request.body, call.request.headers)
    await call.herder.fence(call.request.name)
    return Reply(status=204)


ROUTES: Final = (
    Route("POST", "/connectors/{}/tasks", put_tasks),
    Route("PUT", "/connectors/{}/fence", fence),
)
PATHS: Final = frozenset({("POST", "tasks"), ("PUT", "fence")})
