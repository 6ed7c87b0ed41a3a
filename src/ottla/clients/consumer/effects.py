"""What the cores ask of whoever runs them. Each carries the method that takes the outcome.

`then(outcome, now_ms)` gets the response or, if there is none, a ClientError. It is called exactly once, unless the
consumer is closed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.protocol.message import Message

COORDINATOR = -2
"""As a node: the group's coordinator."""

Then = Callable[[Any, float], None]


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request in the newest common version, at most `max_version`."""

    node: int
    request: Message
    then: Then
    timeout_ms: float | None = None
    max_version: int | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Bring the view of the cluster up to date for these topics, all if None. The outcome is None or a ClientError."""

    topics: frozenset[str] | None
    then: Then


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """The coordinator is another: look for it before the next request."""


Effect = Send | Refresh | ForgetCoordinator
