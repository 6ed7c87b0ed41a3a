"""The common part of group members of both protocols: the time between polls, backoff, errors and duties.

The caller calls `advance` after every event and at `next_timer_ms`; `duty` in each poll until it returns None, and
`duty_done` after carrying out each duty; and `polling(True)` and `polling(False)` around each poll.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

from ottla.clients.cluster import Backoff
from ottla.clients.consumer.effects import COORDINATOR, EffectId, Outbox, Owner
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.errors import BrokerError, BrokerUnavailable, ClientError
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.message import Message

logger = logging.getLogger("ottla.clients.consumer")
NO_GENERATION: Final = -1
S = TypeVar("S", bound=Enum)


@dataclass(frozen=True, slots=True)
class Duty:
    """The duty of the next poll: call the listener; before that commit, if `kind` is "revoked"."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]


class Pause:
    """The pause before the next request, which grows with each failure in a row."""

    __slots__ = ("_backoff", "_failures", "until_ms")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failures = 0
        self.until_ms = 0.0

    def failed(self, now_ms: float, delay_ms: float | None = None) -> None:
        """Begin a pause of `delay_ms`, by default of the backoff after this many failures."""
        self._failures += 1
        self.until_ms = now_ms + (self._backoff.delay_ms(self._failures, 0.5) if delay_ms is None else delay_ms)

    def succeeded(self) -> None:
        """The next failure is the first one again. A pause that has begun goes on."""
        self._failures = 0


class GroupMember(ABC, Generic[S]):
    """One member of one group. `moves` has the legal transitions."""

    moves: Mapping[S, frozenset[S]]
    removed: frozenset[ErrorCode]
    """The errors of a coordinator that has removed the member."""
    commits_in: frozenset[S]
    """The states in which the error of a commit may say that the member was removed."""
    rebalances_in: frozenset[S]
    """The states of a rebalance."""
    rebalanced_in: frozenset[S]
    """The states after a complete rebalance, whose partitions the user's listener may not know yet."""

    def __init__(self, settings: GroupSettings, outbox: Outbox, state: S) -> None:
        self.settings = settings
        self.state = state
        self.error: ClientError | None = None
        """Why this consumer cannot be a member: each poll raises it."""
        self.leave_reason: str | None = None
        """Why the member left the group without the user's request; None after it has joined again."""
        self._outbox = outbox
        self._pause = Pause(settings.backoff)
        self._polling = False
        self._polled_ms: float | None = None

    @property
    @abstractmethod
    def _is_member(self) -> bool:
        """Whether the group knows the member, or is about to, and it does not leave."""

    @abstractmethod
    def _membership(self) -> tuple[int, str]:
        """The generation (KIP-848: the member epoch) and the member id."""

    @abstractmethod
    def _expire(self) -> None:
        """Leave the group until the next poll: the user's program may hang, and other members can go on."""

    @abstractmethod
    def _handle_removal(self, code: int) -> None:
        """Handle the group's removal of this member: its partitions may belong to another member already."""

    def polling(self, is_polling: bool, now_ms: float) -> None:
        self._polling = is_polling
        self._polled_ms = now_ms

    def _poll_due_ms(self) -> float | None:
        """When a member must poll at the latest; None during a poll and before the first one."""
        if self._polling or self._polled_ms is None or not self._is_member:
            return None
        return self._polled_ms + self.settings.max_poll_interval_ms

    def _check_poll_interval(self, now_ms: float) -> None:
        due_ms, limit_ms = self._poll_due_ms(), self.settings.max_poll_interval_ms
        if due_ms is None or now_ms < due_ms:
            return
        self.leave_reason = (
            f"no poll for {(now_ms - due_ms + limit_ms) / 1000:.1f} s, more than max.poll.interval.ms ({limit_ms}): "
            "the member left its group. Poll more often, take fewer records at a time (max.poll.records), or raise "
            "max.poll.interval.ms"
        )
        logger.warning("Group %s: %s", self.settings.group_id, self.leave_reason)
        self._expire()

    def commit_refused(self, code: int, sent_as: tuple[int, str]) -> None:
        """Handle the error of a commit that was sent as (generation, member id).

        An error about an earlier membership is ignored: the member has joined again since.
        """
        if code in self.removed and self.state in self.commits_in and sent_as == self._membership():
            self._handle_removal(code)

    def _send(self, request: Message, *, timeout_ms: float | None = None, min_version: int = 0) -> EffectId:
        return self._outbox.send(Owner.MEMBERSHIP, COORDINATOR, request, timeout_ms=timeout_ms, min_version=min_version)

    def _code(self, error: ClientError) -> ErrorCode | None:
        """The error code of a coordinator's response; None without a response."""
        return error.code if isinstance(error, BrokerError) else None

    def _is_temporary(self, error: ClientError) -> bool:
        """Whether to retry.

        BrokerUnavailable is retried even if it is not retriable elsewhere: the group existed a moment ago, so a name
        that does not resolve or an address that does not speak Kafka is likely temporary.
        """
        return error.retriable or isinstance(error, BrokerUnavailable)

    def _move(self, state: S) -> None:
        assert state in self.moves[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
