"""`/contexts`: the list of contexts, and the delete of an empty one."""

from __future__ import annotations

from typing import Final

from ottla.registry import changes
from ottla.registry.records import to_json
from ottla.registry.routes.requests import Request
from ottla.registry.routes.router import Route


def listing(request: Request) -> bytes:
    """List the contexts, the default one first."""
    prefix = request.text("contextPrefix")
    return to_json(request.page([name for name in request.state.context_names() if name.startswith(prefix)]))


async def delete(request: Request) -> None:
    """Delete a context without subjects."""
    name = request.values[0]
    await request.registry.change(lambda state: changes.delete_context(state, name))


ROUTES: Final = (Route("GET", "/contexts", listing), Route("DELETE", "/contexts/{}", delete))
