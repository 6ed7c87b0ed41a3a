"""The group membership as a consumer's core uses it, whatever the group's protocol.

The caller calls `advance` after every event and at `next_timer_ms`; `duty` in each poll until it returns None, and
`duty_done` after carrying out each duty; and `polling(True)` and `polling(False)` around each poll.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.effects import EffectId, Outcome
from ottla.clients.consumer.member_states import Duty
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition

NO_GENERATION: Final = -1


class GroupMember(Protocol):
    """One member of one group."""

    settings: GroupSettings
    error: ClientError | None
    """Why this consumer cannot be a member: each poll raises it."""
    leave_reason: str | None
    """Why the member left the group without the user's request; None after it has joined again."""

    @property
    def state(self) -> Enum:
        """The state, for comparisons with an earlier one."""

    @property
    def member_id(self) -> str:
        """The id that the group knows the member by; empty while it is not a member."""

    @property
    def generation(self) -> int:
        """The generation (KIP-848: the member epoch) of the membership; NO_GENERATION while it is not a member."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the user was given and that were not taken away since."""

    @property
    def needs_poll(self) -> bool:
        """Whether the member makes no progress until the user polls."""

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Subscribe to these topics, or to those that match a pattern of the broker."""

    def polling(self, is_polling: bool, now_ms: float) -> None:
        """Note the begin or the end of a poll, for max.poll.interval.ms."""

    def duty(self) -> Duty | None:
        """Return what this poll must do before it may return records; None if there is nothing."""

    def duty_done(self, duty: Duty, now_ms: float) -> None:
        """Take note that the listener was called."""

    def leave(self) -> None:
        """Leave the group because the consumer is closed."""

    def commit_refused(self, code: int, sent_as: tuple[int, str]) -> None:
        """Handle the error of a commit that was sent as (generation, member id)."""

    def watched_topics(self) -> frozenset[str]:
        """Return topics besides the subscribed ones whose metadata must be fresh."""

    def advance(self, now_ms: float, view: ClusterView) -> None:
        """Issue the requests that are due."""

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        """Take the outcome of a request or of a metadata refresh."""

    def next_timer_ms(self) -> float | None:
        """When to call `advance` at the latest, if nothing happens."""

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
