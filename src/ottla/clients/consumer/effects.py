"""Output of the state machines of a client's core for its caller: effects, reported problems, the error of a poll.

All machines of one core share an `Outbox`. The core's `advance` returns the effects, and the caller carries them out.
It reports the outcome of each `Send` and `Refresh` exactly once with `complete(id, outcome, now_ms)`, unless the client
is closed before. The core passes the outcome to the machine that `id.owner` names. A machine forgets the id of a
request that it does not need any more, so the outcome of a superseded request changes nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.clients.errors import ClientError
from ottla.protocol.message import Message

COORDINATOR: Final = -2
"""As a node id: the coordinator of the consumer's group."""


class Owner(Enum):
    """The machine that issued an effect and takes its outcome."""

    METADATA = "topic metadata"
    MEMBERSHIP = "group membership"
    COMMITS = "committed offsets"
    LOOKUPS = "lookups of offsets and leader epochs"
    FETCHES = "fetches"

    __hash__ = object.__hash__


class EffectId(NamedTuple):
    owner: Owner
    number: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request in the newest version that both sides support, but not newer than `max_version`.

    An older version than `min_version` lacks a field that the request needs: the outcome is UnsupportedByBroker.
    """

    id: EffectId
    node: int
    request: Message
    timeout_ms: float | None = None
    max_version: int | None = None
    min_version: int = 0


@dataclass(frozen=True, slots=True)
class Refresh:
    """Refresh the metadata of these topics, or of all topics if None."""

    id: EffectId
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ForgetCoordinator:
    """Look up the group's coordinator again before the next request to it."""


Effect = Send | Refresh | ForgetCoordinator
Outcome = Message | ClientError | None
"""The response of a `Send`, None after a successful `Refresh`, or the error of either."""


class Outbox:
    """Collects the effects of one core's machines in the order in which they were issued."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._numbers = itertools.count()
        self._problems: dict[str, ClientError | None] = {}
        self.poll_error: ClientError | None = None
        """The next poll raises this error, once."""
        self.needs_advance = False
        """Whether a call by the user left work for the core's `advance`."""

    def send(
        self,
        owner: Owner,
        node: int,
        request: Message,
        *,
        timeout_ms: float | None = None,
        max_version: int | None = None,
        min_version: int = 0,
    ) -> EffectId:
        effect_id = EffectId(owner, next(self._numbers))
        self._effects.append(Send(effect_id, node, request, timeout_ms, max_version, min_version))
        return effect_id

    def refresh(self, owner: Owner, topics: frozenset[str] | None) -> EffectId:
        effect_id = EffectId(owner, next(self._numbers))
        self._effects.append(Refresh(effect_id, topics))
        return effect_id

    def forget_coordinator(self) -> None:
        self._effects.append(ForgetCoordinator())

    def report(self, subject: str, problem: ClientError | None) -> None:
        """Report that a problem with `subject` began, or with None that there is no problem."""
        self._problems[subject] = problem

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def take_problems(self) -> dict[str, ClientError | None]:
        problems, self._problems = self._problems, {}
        return problems


def earliest(*times_ms: float | None) -> float | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)
