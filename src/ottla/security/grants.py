"""Remembers which topics the client of a connection may read and write, until a rule changes.

Producers and consumers name the same topics in each request, so that most requests are decided by one look-up:

    if topic not in grants.writable: ...            # decide, and `authorizer.remember(grants.writable, topic)`

Only rights are remembered: a denied operation is decided, and reported, each time. A rule that changes empties all
grants at once, so that a connection never has to ask whether its grants are outdated. A topic that is recreated keeps
its name, and with it the rights; its new id is decided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ottla.common.ids import Uuid

MAX_GRANTS = 1 << 16
"""The most topics that the grants of all connections of a node have together."""

Granted: TypeAlias = "set[str | Uuid]"
"""Topics, by name or id."""


class Grants:
    """The topics that one principal, with one address, may read and write."""

    __slots__ = ("principal", "readable", "writable")

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self.readable: Granted = set()
        self.writable: Granted = set()


class GrantTable:
    """The grants of all connections that are not empty."""

    def __init__(self) -> None:
        self._granted: list[Granted] = []
        self._count = 0

    def add(self, granted: Granted, topic: str | Uuid) -> None:
        """Add a topic to the grants of a connection; if there are too many, all of them are emptied first."""
        if self._count >= MAX_GRANTS:
            self.clear()
        if not granted:
            self._granted.append(granted)
        granted.add(topic)
        self._count += 1

    def clear(self) -> None:
        """Empty the grants of every connection. Cost: grows with the grants since the last call."""
        for granted in self._granted:
            granted.clear()
        self._granted.clear()
        self._count = 0
