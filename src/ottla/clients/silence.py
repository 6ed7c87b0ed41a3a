"""Finds the brokers that do not answer.

A broker that hangs keeps its connections open, and a request to it fails only after request.timeout.ms. The metadata of
the other brokers says earlier whether it has left the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.network.client import ClientConnection

SILENCE_S: Final = 3.0
"""How long a connection may wait for a response before the metadata is refreshed."""


def silent_connections(
    connections: Iterable[ClientConnection], received: Mapping[ClientConnection, int]
) -> tuple[frozenset[ClientConnection], dict[ClientConnection, int]]:
    """Return the connections that have received nothing since the last look, and what each has received now.

    Only connections that wait for a response count. Pass the second result to the next look.
    """
    waiting = {each: each.received_bytes for each in connections if each.in_flight and not each.closed}
    silent = frozenset(each for each, count in waiting.items() if received.get(each) == count)
    return silent, waiting
