"""`/connectors`: create, read, change, restart and delete connectors, and their offsets."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.errors import NotFoundError
from ottla.connect.herder.core import RestartRequest
from ottla.connect.rest.requests import named, new_connector, offsets_of
from ottla.connect.rest.router import Operation, Reply, Route
from ottla.connect.runtime import TargetState, TaskId

logger = logging.getLogger(__name__)


async def listing(call: Operation) -> Reply:
    """List the names, or with `expand` what is known of each connector."""
    store, views = call.herder.store, call.herder.views
    wanted = call.request.values("expand")
    if not wanted:
        return Reply(list(store.connectors()))
    found: dict[str, Any] = {}
    for name in store.connectors():
        try:
            rows = {"status": views.status, "info": views.info}
            found[name] = {each: rows[each](name) for each in wanted if each in rows}
        except NotFoundError:
            logger.debug("The connector %s was deleted, or has no status yet", name)
    return Reply(found)


async def create(call: Operation) -> Reply:
    """Create a connector."""
    name, config, target = new_connector(call.request)
    _, info = await call.herder.put_config(name, named(name, config), target, replace=False)
    return Reply(info, 201, _place(name))


async def info(call: Operation) -> Reply:
    """Return the configuration and the tasks."""
    return Reply(call.herder.views.info(call.request.name))


async def config(call: Operation) -> Reply:
    """Return the configuration."""
    return Reply(dict(call.herder.views.require(call.request.name)))


async def put_config(call: Operation) -> Reply:
    """Create or configure a connector."""
    name = call.request.name
    is_new, info = await call.herder.put_config(name, named(name, call.request.config()), replace=True)
    return Reply(info, 201, _place(name)) if is_new else Reply(info)


async def patch_config(call: Operation) -> Reply:
    """Change some settings."""
    return Reply(await call.herder.patch_config(call.request.name, call.request.config()))


async def delete(call: Operation) -> Reply:
    """Delete a connector."""
    await call.herder.delete(call.request.name)
    return Reply(status=204)


async def status(call: Operation) -> Reply:
    """Return the states of a connector and its tasks."""
    return Reply(call.herder.views.status(call.request.name))


async def topics(call: Operation) -> Reply:
    """Return the topics that a connector has used."""
    name = call.request.name
    return Reply({name: {"topics": list(call.herder.store.topics(name))}})


async def reset_topics(call: Operation) -> Reply:
    """Forget the topics that a connector has used."""
    await call.herder.store.reset_topics(call.request.name)
    return Reply(status=202)


async def restart(call: Operation) -> Reply:
    """Restart a connector, and its tasks (KIP-745)."""
    request = call.request
    wanted = RestartRequest(request.name, request.flag("onlyFailed"), request.flag("includeTasks"))
    states = await call.herder.restart(wanted)
    return Reply(status=204) if states is None else Reply(states, 202)


async def pause(call: Operation) -> Reply:
    """Pause a connector."""
    await call.herder.set_target(call.request.name, TargetState.PAUSED)
    return Reply(status=202)


async def resume(call: Operation) -> Reply:
    """Resume a connector."""
    await call.herder.set_target(call.request.name, TargetState.STARTED)
    return Reply(status=202)


async def stop(call: Operation) -> Reply:
    """Stop a connector (KIP-875)."""
    await call.herder.stop(call.request.name)
    return Reply(status=204)


async def tasks(call: Operation) -> Reply:
    """Return the configurations of the tasks."""
    return Reply(call.herder.views.tasks(call.request.name))


async def task_status(call: Operation) -> Reply:
    """Return the state of a task."""
    return Reply(call.herder.views.task_status(TaskId(call.request.name, call.request.task)))


async def restart_task(call: Operation) -> Reply:
    """Restart a task."""
    await call.herder.restart_task(TaskId(call.request.name, call.request.task))
    return Reply(status=204)


async def offsets(call: Operation) -> Reply:
    """Return the committed offsets."""
    return Reply(await call.herder.offsets(call.request.name))


async def alter_offsets(call: Operation) -> Reply:
    """Change committed offsets."""
    given = offsets_of(call.request)
    return Reply({"message": await call.herder.alter_offsets(call.request.name, given)})


async def reset_offsets(call: Operation) -> Reply:
    """Delete the committed offsets."""
    return Reply({"message": await call.herder.alter_offsets(call.request.name, None)})


async def reports(call: Operation) -> Reply:
    """Return the reports of the tasks that run on this worker. Kafka Connect has no such operation."""
    return Reply(call.herder.reports(call.request.name))


def _place(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


_ONE: Final = "/connectors/{}"
ROUTES: Final = (
    Route("GET", "/connectors", listing),
    Route("POST", "/connectors", create),
    Route("GET", _ONE, info),
    Route("DELETE", _ONE, delete),
    Route("GET", f"{_ONE}/config", config),
    Route("PUT", f"{_ONE}/config", put_config),
    Route("PATCH", f"{_ONE}/config", patch_config),
    Route("GET", f"{_ONE}/status", status),
    Route("POST", f"{_ONE}/restart", restart),
    Route("PUT", f"{_ONE}/pause", pause),
    Route("PUT", f"{_ONE}/resume", resume),
    Route("PUT", f"{_ONE}/stop", stop),
    Route("GET", f"{_ONE}/tasks", tasks),
    Route("GET", f"{_ONE}/tasks/{{}}/status", task_status),
    Route("POST", f"{_ONE}/tasks/{{}}/restart", restart_task),
    Route("GET", f"{_ONE}/offsets", offsets),
    Route("PATCH", f"{_ONE}/offsets", alter_offsets),
    Route("DELETE", f"{_ONE}/offsets", reset_offsets),
    Route("GET", f"{_ONE}/reports", reports),
)
TOPIC_ROUTES: Final = (Route("GET", f"{_ONE}/topics", topics), Route("PUT", f"{_ONE}/topics/reset", reset_topics))
