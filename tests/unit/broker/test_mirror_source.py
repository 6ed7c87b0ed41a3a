"""The connections of a mirror to the nodes of its source."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors.mirror import fetchers_of
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
    assert source.fastest_s < math.inf


@pytest.mark.parametrize(
    ("given", "answer_s", "expected"), [(-1, math.inf, 4), (-1, 0.1, 4), (-1, 0.002, 1), (8, 0.002, 8), (1, 0.1, 1)]
)
def test_only_a_long_line_has_several_fetchers_unless_their_number_is_set(
    given: int, answer_s: float, expected: int
) -> None:
    assert fetchers_of(given, answer_s) == expected
