"""`/admin/loggers`: levels of loggers, of this worker or of all (KIP-495, KIP-976)."""

from __future__ import annotations

import logging
from typing import Final

from ottla.connect.errors import BadRequestError, NotFoundError
from ottla.connect.herder.loggers import level_number
from ottla.connect.rest.router import Operation, Reply, Route

logger = logging.getLogger(__name__)


async def listing(call: Operation) -> Reply:
    """List the loggers with a level of their own."""
    return Reply(call.herder.loggers.levels())


async def level(call: Operation) -> Reply:
    """Return the level of a logger."""
    name = call.request.name
    found = call.herder.loggers.level(name)
    if found is None:
        raise NotFoundError(f"Logger {name} not found.")
    return Reply(found)


async def set_level(call: Operation) -> Reply:
    """Set the level of a logger and those below it."""
    text = call.request.config().get("level")
    if text is None:
        raise BadRequestError("Desired 'level' parameter was not specified in request.")
    if level_number(text) is None:
        raise NotFoundError(f"invalid log level '{text}'.")
    scope = (call.request.value("scope") or "worker").lower()
    if scope == "cluster":
        await call.herder.set_logger(call.request.name, text.upper())
        return Reply(status=204)
    if scope != "worker":
        logger.warning("The scope %r of a change of a logger is unknown; it is worker", scope)
    return Reply(call.herder.loggers.set_level(call.request.name, text))


ROUTES: Final = (
    Route("GET", "/admin/loggers", listing),
    Route("GET", "/admin/loggers/{}", level),
    Route("PUT", "/admin/loggers/{}", set_level),
)
