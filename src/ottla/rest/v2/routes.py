"""The paths of v2 and their handlers."""

from __future__ import annotations

import time

from starlette.routing import Route

from ottla.rest.calls import Endpoint, Handler, Proxy
from ottla.rest.v2 import consumers, produce, topics
from ottla.rest.v2.consumers import InstanceHandler, for_instance
from ottla.rest.v2.instances import Instances
from ottla.rest.v2.media_types import V2_JSON

_INSTANCE = "/consumers/{group}/instances/{instance}"
_PARTITION = "/topics/{topic}/partitions/{partition}"


def routes(proxy: Proxy) -> list[Route]:
    """Return the routes of v2, the most used first."""

    def route(method: str, path: str, handler: Handler) -> Route:
        return Route(path, Endpoint(proxy, handler, V2_JSON), methods=[method])

    def of_instance(method: str, path: str, handler: InstanceHandler) -> Route:
        return route(method, _INSTANCE + path, for_instance(handler))

    proxy.parts[consumers.PART] = Instances(proxy.settings, time.monotonic)
    return [
        route("GET", f"{_INSTANCE}/records", for_instance(consumers.records, checks_accept=False)),
        route("POST", "/topics/{topic}", produce.to_topic),
        route("POST", _PARTITION, produce.to_partition),
        route("GET", "/topics", topics.list_topics),
        route("GET", "/topics/{topic}", topics.get_topic),
        route("GET", "/topics/{topic}/partitions", topics.list_partitions),
        route("GET", _PARTITION, topics.get_partition),
        route("GET", f"{_PARTITION}/offsets", topics.get_offsets),
        route("GET", "/brokers", topics.list_brokers),
        route("GET", "/", topics.root),
        route("POST", "/consumers/{group}", consumers.create),
        route("DELETE", _INSTANCE, consumers.delete),
        of_instance("POST", "/subscription", consumers.subscribe),
        of_instance("GET", "/subscription", consumers.subscription),
        of_instance("DELETE", "/subscription", consumers.unsubscribe),
        of_instance("POST", "/assignments", consumers.assign),
        of_instance("GET", "/assignments", consumers.assignments),
        of_instance("POST", "/positions", consumers.seek),
        of_instance("POST", "/positions/beginning", consumers.seek_to_beginning),
        of_instance("POST", "/positions/end", consumers.seek_to_end),
        of_instance("POST", "/offsets", consumers.commit),
        of_instance("GET", "/offsets", consumers.committed),
    ]
