"""One member of a consumer group: what it said of itself, its epoch, and the partitions that it owns.

Members are values. A request computes the next value, which takes effect when its records are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from ottla.common.ids import Uuid
from ottla.coordinators.group.modern.epochs import STATIC_LEAVE_EPOCH

Owned: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the epoch at which the member got it; no topic is empty."""

NOTHING_OWNED: Owned = {}


def _nothing_owned() -> Owned:
    return NOTHING_OWNED


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. Values are the same as in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up yet."""
    UNKNOWN = 127
    """A state of a later version of Kafka."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state of a record."""
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


class ClassicMember(NamedTuple):
    """The protocols that a classic member joined with: (protocol name, metadata) in its order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member; times in milliseconds."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """The regular expression (RE2) by which it subscribes; empty if it does not use one."""
    assignor: str | None = None
    assigned: Owned = field(default_factory=_nothing_owned)
    revoking: Owned = field(default_factory=_nothing_owned)
    """Partitions that it must give up, and still owns."""
    classic: ClassicMember | None = None
    """Set if it uses the classic protocol."""

    @property
    def has_left_for_now(self) -> bool:
        """Whether it is a static member that left and may return within its session timeout."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether it has exactly its part of the target assignment of `target_epoch`."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch at which it got a partition that it owns; None if it does not own it."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
