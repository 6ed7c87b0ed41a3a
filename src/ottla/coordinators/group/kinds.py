"""The operations of a shard on the groups of each type except classic groups: one row of `KINDS` for each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ottla.coordinators.events import Call, Effects, Moment, RecordBytes
from ottla.coordinators.group import offsets, unserved
from ottla.coordinators.group.consumer import admin as consumer_admin
from ottla.coordinators.group.consumer import classic_members, fencing
from ottla.coordinators.group.consumer import records as consumer_records
from ottla.coordinators.group.consumer.replay import replay as replay_consumer_group
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.modern import ModernGroup
from ottla.coordinators.group.share import admin as share_admin
from ottla.coordinators.group.share import heartbeat as share_members
from ottla.coordinators.group.share import initialization as share_states
from ottla.coordinators.group.share.replay import replay as replay_share_group
from ottla.coordinators.group.streams import admin as streams_admin
from ottla.coordinators.group.streams import fencing as streams_members
from ottla.coordinators.group.streams import records as streams_records
from ottla.coordinators.group.streams.replay import replay as replay_streams_group
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.group_records import RECORD_TYPES
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest

_Answer: TypeAlias = Callable[[Core, Call[Any], Any, Any, Moment], "Effects | None"]


class GroupKind(NamedTuple):
    """The operations of one type of modern group."""

    name: str
    """The type in ListGroups."""
    groups: Callable[[Core], Mapping[str, ModernGroup[Any]]]
    record_types: tuple[int, ...]
    replay: Callable[[Core, Message, Message | None], None]
    loaded: Callable[[Core, Any, Moment], Effects]
    """Starts the timers of the members of a group that was loaded."""
    timer_elapsed: Callable[[Core, Kind, Any, str, Moment], Effects]
    answers: dict[type, _Answer]
    """Requests that are answered in another way than for a classic group; None: handle it as if it had no group."""
    tombstones: Callable[[Any], list[RecordBytes]] | None = None
    """Encodes the records that delete an empty group once its offsets have expired; None for groups without offsets."""


CONSUMER = GroupKind(
    name="consumer",
    groups=lambda core: core.consumer_groups,
    record_types=(3, 4, 5, 6, 7, 8, 16),
    replay=replay_consumer_group,
    loaded=fencing.loaded,
    timer_elapsed=fencing.timer_elapsed,
    answers={
        JoinGroupRequest: classic_members.join,
        SyncGroupRequest: classic_members.sync,
        HeartbeatRequest: classic_members.heartbeat,
        LeaveGroupRequest: classic_members.leave,
        OffsetDeleteRequest: offsets.delete_unsubscribed,
        DeleteGroup: consumer_admin.delete,
    },
    tombstones=consumer_records.group_tombstones,
)
SHARE = GroupKind(
    name="share",
    groups=lambda core: core.share_groups,
    record_types=(10, 11, 12, 13, 14, 15),
    replay=replay_share_group,
    loaded=share_members.loaded,
    timer_elapsed=share_members.timer_elapsed,
    answers={JoinGroupRequest: share_admin.refuse_classic, DeleteGroup: share_states.delete},
)
STREAMS = GroupKind(
    name="streams",
    groups=lambda core: core.streams_groups,
    record_types=(17, 19, 20, 21, 22, 23),
    replay=replay_streams_group,
    loaded=streams_members.loaded,
    timer_elapsed=streams_members.timer_elapsed,
    answers={
        JoinGroupRequest: streams_admin.join_classic,
        OffsetDeleteRequest: offsets.delete_unsubscribed,
        DeleteGroup: streams_admin.delete,
    },
    tombstones=streams_records.group_tombstones,
)
KINDS = (CONSUMER, SHARE, STREAMS)

REPLAYS = {RECORD_TYPES[number][0]: kind.replay for kind in KINDS for number in kind.record_types}
"""The function that applies a record, by the class of its key."""

_UNSERVED: dict[type, _Answer] = {JoinGroupRequest: unserved.refuse_classic, DeleteGroup: unserved.refuse_deletion}
_ANSWERED = frozenset(_UNSERVED).union(*(kind.answers for kind in KINDS))


def answer(core: Core, call: Call[Any], now: Moment) -> Effects | None:
    """Answer a request that names a group of another type than classic, if this type has an answer of its own."""
    request = call.request
    if type(request) not in _ANSWERED:
        return None
    for kind in KINDS:
        group = kind.groups(core).get(request.group_id)
        if group is not None:
            own = kind.answers.get(type(request))
            return None if own is None else own(core, call, request, group, now)
    other = core.unserved.get(request.group_id)
    own = None if other is None else _UNSERVED.get(type(request))
    return None if own is None else own(core, call, request, other, now)


def modern_group(core: Core, group_id: str) -> tuple[GroupKind, ModernGroup[Any]] | None:
    """Return the group with its type; None if there is no such group, or only a classic one."""
    for kind in KINDS:
        group = kind.groups(core).get(group_id)
        if group is not None:
            return kind, group
    return None
