"""The paths of event streams."""

from __future__ import annotations

from starlette.routing import Route

from ottla.rest.calls import Endpoint, Proxy
from ottla.rest.events import stream


def routes(proxy: Proxy) -> list[Route]:
    """Return the routes of event streams."""
    proxy.parts[stream.PART] = stream.Streams()
    return [Route("/topics/{topic}/events", Endpoint(proxy, stream.events), methods=["GET"])]
