"""`/` and `/health` (KIP-1017)."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla import __version__
from ottla.connect.errors import ConnectError
from ottla.connect.rest.router import Operation, Reply, Route

API_VERSION: Final = "4.3.0"
_HEALTH_S: Final = 10.0
_HEALTHY: Final = "Worker has completed startup and is ready to handle requests."
_STARTING: Final = "Worker is still starting up."
_UNHEALTHY: Final = "Worker was unable to handle this request and may be unable to handle other requests."


async def root(call: Operation) -> Reply:
    """Return the version of the API, and the id of the Kafka cluster."""
    cluster = await call.herder.environment.cluster_id()
    return Reply({"version": API_VERSION, "commit": f"ottla-{__version__}", "kafka_cluster_id": cluster})


async def health(call: Operation) -> Reply:
    """Return whether the worker has started and reaches its brokers."""
    if not call.herder.is_ready:
        return Reply({"status": "starting", "message": _STARTING}, 503)
    try:
        async with asyncio.timeout(_HEALTH_S):
            await call.herder.store.refresh()
    except (TimeoutError, ConnectError) as error:
        reason = str(error) or f"The brokers did not answer within {_HEALTH_S:g} s."
        return Reply({"status": "unhealthy", "message": f"{_UNHEALTHY} {reason}"}, 500)
    return Reply({"status": "healthy", "message": _HEALTHY})


ROUTES: Final = (Route("GET", "/", root), Route("GET", "/health", health))
