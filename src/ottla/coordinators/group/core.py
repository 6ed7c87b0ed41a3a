"""The state of a shard that all its modules share: groups, offsets, timers, settings and appends in flight.

Also builds the responses to JoinGroup and SyncGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordinators.events import Append, Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.follow_ups import AnswerCall, FollowUp, InFlight
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.member import Member
from ottla.coordinators.group.modern import EMPTY_TOPICS, Topics
from ottla.coordinators.group.offset_store import OffsetStore
from ottla.coordinators.group.timer_keys import Kind, TimerKey
from ottla.coordinators.timers import Timers
from ottla.metadata.image import EMPTY_IMAGE, GROUP
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinators.group.consumer.group import ConsumerGroup, MatchingJob
    from ottla.coordinators.group.share.group import ShareGroup
    from ottla.coordinators.group.streams.group import StreamsGroup
    from ottla.coordinators.group.unserved_group import UnservedGroup

R = TypeVar("R")

NO_PRODUCER_ID = -1
# Before version 7 the protocol name is not nullable.
NULLABLE_PROTOCOL_NAME = 7
# Larger sets of records that need not be atomic are split, so that each batch stays below any size limit.
MOST_RECORDS_IN_BATCH = 1_000


class Appends:
    """The appends whose outcome has not been reported."""

    __slots__ = ("_next_id", "in_flight")

    def __init__(self) -> None:
        self.in_flight: dict[int, InFlight] = {}
        self._next_id = 0

    def begin(
        self, records: Sequence[RecordBytes], follow_up: FollowUp | None, producer_id: int, producer_epoch: int
    ) -> Append:
        """Create the effect, with an id of its own."""
        append = Append(self._next_id, tuple(records), producer_id, producer_epoch)
        self._next_id += 1
        self.in_flight[append.id] = InFlight(append.records, follow_up, producer_id)
        return append

    def take(self, append_id: int) -> InFlight:
        """Remove an append whose outcome is known."""
        return self.in_flight.pop(append_id)


class Core:
    """State of one shard; `random_bytes(count)` makes member ids."""

    __slots__ = (
        "appends",
        "changing_shares",
        "config",
        "consumer_groups",
        "groups",
        "image",
        "matching",
        "offsets",
        "random_bytes",
        "share_groups",
        "streams_groups",
        "timers",
        "topics",
        "topics_created_at",
        "unserved",
    )

    def __init__(self, config: GroupConfig, random_bytes: Callable[[int], bytes]) -> None:
        self.config = config
        self.random_bytes = random_bytes
        # Classic groups, groups of the modern types, and of unsupported types. Invariant: no id is in two of these.
        self.groups: dict[str, Group] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.streams_groups: dict[str, StreamsGroup] = {}
        self.unserved: dict[str, UnservedGroup] = {}
        # The cluster's metadata, and the version in which topics were created last.
        self.image = EMPTY_IMAGE
        self.topics: Topics = EMPTY_TOPICS
        self.topics_created_at = -1
        # Groups whose regular expressions are being matched with the names of topics.
        self.matching: dict[str, MatchingJob] = {}
        # Share groups whose share state is being altered or deleted, and the administrators' requests that do so.
        self.changing_shares: dict[str, Call[Any]] = {}
        self.offsets = OffsetStore()
        self.timers: Timers[TimerKey] = Timers()
        self.appends = Appends()

    def has_group(self, group_id: str) -> bool:
        """Whether there is a group of any type with this id."""
        all_groups = (self.groups, self.consumer_groups, self.share_groups, self.streams_groups, self.unserved)
        return any(group_id in groups for groups in all_groups)

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """The settings of one group that differ from the broker's."""
        return self.image.config(GROUP, group_id)

    def append(self, records: Sequence[RecordBytes], follow_up: FollowUp | None = None) -> Append:
        """Return the effect that appends `records` as one batch; `follow_up` is done when its outcome is known."""
        return self.append_in_transaction(records, follow_up, NO_PRODUCER_ID, -1)

    def append_in_transaction(
        self, records: Sequence[RecordBytes], follow_up: FollowUp | None, producer_id: int, producer_epoch: int
    ) -> Append:
        """Like `append`, as part of the transaction of a producer."""
        return self.appends.begin(records, follow_up, producer_id, producer_epoch)

    def append_split(self, records: Sequence[RecordBytes], follow_up: FollowUp | None = None) -> Effects:
        """Like `append`, but in several batches if there are many records; `follow_up` belongs to the last batch."""
        size = MOST_RECORDS_IN_BATCH
        parts = [records[start : start + size] for start in range(0, len(records), size)]
        return [self.append(part, follow_up if part is parts[-1] else None) for part in parts]

    def reply_after_append(self, call: Call[Request[R]], records: Sequence[RecordBytes], response: R) -> Effects:
        """Append `records`, then answer `call`: with `response`, or with the append's error."""
        if not records:
            return [Reply(call, response)]
        return [self.append(records, AnswerCall(call, response))]

    def new_member_id(self, prefix: str) -> str:
        """Create a member id: `prefix` (the client id or group.instance.id) and a random UUID."""
        return f"{prefix}-{self.new_uuid()}"

    def new_uuid(self) -> str:
        """Create a random UUID (version 4) in its usual text form."""
        raw = bytearray(self.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def expect_heartbeat(self, group: Group, member: Member, now: Moment, within_ms: int | None = None) -> None:
        """Expire the member unless a heartbeat arrives `within_ms` (None: its session timeout)."""
        timeout_ms = member.session_timeout_ms if within_ms is None else within_ms
        self.timers.set((Kind.SESSION, group.group_id, member.member_id), now.monotonic_ms + timeout_ms)

    def forget_heartbeat(self, group: Group, member_id: str) -> None:
        """Cancel the session timer of a member that was removed."""
        self.timers.cancel((Kind.SESSION, group.group_id, member_id))

    def forget_group(self, group: Group) -> None:
        """Cancel all timers of `group`."""
        self.timers.cancel((Kind.JOIN, group.group_id, ""))
        self.timers.cancel((Kind.SYNC, group.group_id, ""))
        for member_id in (*group.members, *group.pending_joins):
            self.forget_heartbeat(group, member_id)


def refuse_join(call: Call[JoinGroupRequest], error: ErrorCode, member_id: str = "") -> Reply[JoinGroupResponse]:
    """Answer a JoinGroup with an error."""
    name = "" if call.api_version < NULLABLE_PROTOCOL_NAME else None
    return Reply(call, JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=name))


def accept_join(
    call: Call[JoinGroupRequest], group: Group, member: Member, *, leader: str | None = None, skip: bool = False
) -> Reply[JoinGroupResponse]:
    """Answer a JoinGroup that succeeded. Only the leader's response lists the members.

    A static leader that returned must not assign partitions again. Its response either names another `leader`, or,
    since KIP-814, sets the flag `skip`.
    """
    members = []
    if group.leader == member.member_id and leader is None:
        name = group.protocol_name
        members = [
            JoinGroupResponseMember(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(name))
            for m in group.members.values()
        ]
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or group.leader or "",
        skip_assignment=skip,
        member_id=member.member_id,
        members=members,
    )
    return Reply(call, response)


def refuse_sync(call: Call[SyncGroupRequest], error: ErrorCode) -> Reply[SyncGroupResponse]:
    """Answer a SyncGroup with an error."""
    return Reply(call, SyncGroupResponse(error_code=error))


def accept_sync(call: Call[SyncGroupRequest], group: Group, assignment: bytes) -> Reply[SyncGroupResponse]:
    """Answer a SyncGroup with the member's assignment."""
    response = SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
    return Reply(call, response)
