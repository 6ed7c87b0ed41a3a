"""The connections of a mirror to the nodes of its source."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.mirrors.source import Source
from ottla.config import resolve_mirror
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker


def test_connections_to_addresses_that_the_source_has_left_are_closed() -> None:
    settings = {key: each.value for key, each in resolve_mirror({"bootstrap.servers": "first:1"}).items()}
    source = Source("mirror", settings)
    closed: list[int] = []
    addresses = [("first", 1), ("node", 2), ("node", 3)]
    for host, port in addresses:
        channel = SimpleNamespace(close=lambda port=port: closed.append(port))
        source._channels[host, port] = cast("Any", channel)

    async def answer(*_: object, **__: object) -> MetadataResponse:
        broker = MetadataResponseBroker(node_id=1, host="node", port=3)
        return MetadataResponse(brokers=[broker], cluster_id="A")

    source.ask = answer  # type: ignore[method-assign]
    asyncio.run(source.metadata([]))
    assert (closed, sorted(source._channels)) == ([2], [("first", 1), ("node", 3)])
    assert (source.nodes, source.cluster_id) == ({1: ("node", 3)}, "A")
