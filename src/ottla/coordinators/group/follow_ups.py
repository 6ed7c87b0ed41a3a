"""The follow-ups of a shard once the outcome of an append is known, as data: one type for each kind.

`Core.append` stores the follow-up under the id of the `Append`; `GroupShard.handle_appended` takes it out again and
calls the function that its table names for the type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ottla.common.request import Request
    from ottla.coordinators.events import Call, RecordBytes
    from ottla.coordinators.group.events import DeleteGroup
    from ottla.coordinators.group.group import Group
    from ottla.coordinators.group.member import Member, Protocols
    from ottla.coordinators.group.share.events import (
        AlterShareOffsets,
        DeleteShareOffsets,
        DeleteShares,
        ForgetShares,
        InitializeShares,
        ReleaseRecords,
        ResetShares,
    )
    from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.messages.join_group import JoinGroupRequest
    from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

R = TypeVar("R")


class AnswerCall(NamedTuple, Generic[R]):
    """Answer `call` with `response`, or with the append's error."""

    call: Call[Request[R]]
    response: R


class AnswerSyncs(NamedTuple):
    """Answer the parked SyncGroups of `group`; the record holds the assignment that its leader sent."""

    group: Group
    leader_id: str


class ReplaceStaticMember(NamedTuple):
    """Answer the JoinGroup of a static member that returned to a Stable group."""

    call: Call[JoinGroupRequest]
    group: Group
    member: Member
    successor: Member
    """The member as it joins now: its new id, timeouts and protocols."""
    old_id: str
    leader_before: str | None


class JoinConvertedGroup(NamedTuple):
    """Handle a JoinGroup whose group was converted to a classic group by the appended tombstones."""

    call: Call[JoinGroupRequest]
    request: JoinGroupRequest


class JoinUpgradedGroup(NamedTuple):
    """Let a consumer member join a group that was converted from the classic group `former`."""

    call: Call[ConsumerGroupHeartbeatRequest]
    request: ConsumerGroupHeartbeatRequest
    former: Group


class RebalanceDowngradedGroup(NamedTuple):
    """Let the members of a group that was converted to a classic group rebalance."""

    group_id: str
    protocols: dict[str, Protocols]
    """The protocols of each member."""
    answer: AnswerCall[Any] | None
    """The request by which the last consumer member left, and its response."""


class JoinDowngradedGroup(NamedTuple):
    """Answer a static classic member that replaced the last consumer member, by which the group became classic."""

    call: Call[JoinGroupRequest]
    group_id: str
    member_id: str
    replaced_id: str
    protocols: dict[str, Protocols]
    """The protocols of each member."""
    must_rebalance: bool


class AnswerShareHeartbeat(NamedTuple):
    """Answer a member of a share group, and create share state."""

    call: Call[ShareGroupHeartbeatRequest]
    response: ShareGroupHeartbeatResponse
    effect: InitializeShares | None


class ReleaseShareRecords(NamedTuple):
    """Release the records of a member of a share group whose session with the group ended."""

    effect: ReleaseRecords


class ChangeShareState(NamedTuple):
    """Alter or delete share state as `call` requests."""

    call: Call[DeleteGroup] | Call[AlterShareOffsets] | Call[DeleteShareOffsets]
    effect: DeleteShares | ResetShares | ForgetShares


FollowUp: TypeAlias = (
    AnswerCall[Any]
    | AnswerSyncs
    | ReplaceStaticMember
    | JoinConvertedGroup
    | JoinUpgradedGroup
    | RebalanceDowngradedGroup
    | JoinDowngradedGroup
    | AnswerShareHeartbeat
    | ReleaseShareRecords
    | ChangeShareState
)


class InFlight(NamedTuple):
    """The records of an append, replayed if it succeeds, and what follows from its outcome."""

    records: tuple[RecordBytes, ...]
    follow_up: FollowUp | None
    producer_id: int = -1
    """The producer whose transaction the records are part of, or -1."""
