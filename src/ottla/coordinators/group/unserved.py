"""Groups of unsupported types: streams groups (KIP-1071), and groups of later versions of Kafka.

Stock Kafka wrote their records. The records stay in the log, and the offsets of these groups do not expire, so that
Kafka can serve the groups again. Two requests change such a group, as on Kafka: a classic member that joins an empty
streams group converts it to a classic group, and DeleteGroups deletes it.

The members of these groups cannot send heartbeats here. As on Kafka after a restart, they count as alive for one
session timeout (45 s) after the log was loaded.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.errors import refuse
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.follow_ups import JoinConvertedGroup
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.join import join
from ottla.coordinators.group.offsets import (
    MOST_TOMBSTONES,
    delete_unsubscribed,
    some_tombstones,
)
from ottla.coordinators.group.states import State
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest

KINDS = STREAMS, UNKNOWN = "streams", "unknown"
# Kafka's CoordinatorRecordType up to 4.3. Only early releases wrote the types 9 and 18.
_KIND_OF_RECORD = dict.fromkeys(range(17, 24), STREAMS)
# Partitions of a share group. Later records repeat what they say.
_OBSOLETE_TYPE = 9
_MEMBER_TYPES = frozenset({19})
_CONVERTIBLE = frozenset({STREAMS})
UNKNOWN_STATE = "Unknown"


class UnservedGroup:
    """The type of a group, and the keys of its records without a tombstone."""

    __slots__ = ("group_id", "keys", "kind")

    def __init__(self, group_id: str, kind: str) -> None:
        self.group_id = group_id
        self.kind = kind
        # Invariant: never empty while the group is in `Core.unserved`.
        self.keys: set[bytes] = set()

    @property
    def has_members(self) -> bool:
        """Whether the log names members."""
        return any(_type(key) in _MEMBER_TYPES for key in self.keys)

    def is_alive(self, core: Core, now: Moment) -> bool:
        """Whether members may still be alive."""
        timed_out = now.monotonic_ms - core.loaded_ms >= core.config.unserved_session_timeout_ms
        return self.has_members and not timed_out

    def check_commit(self, core: Core, epoch: int, now: Moment) -> ErrorCode:
        """The error for a commit of offsets; GROUP_ID_NOT_FOUND if the group cannot have offsets."""
        if self.kind not in _CONVERTIBLE:
            return ErrorCode.GROUP_ID_NOT_FOUND
        # An administrator may commit for an empty group.
        return ErrorCode.UNKNOWN_MEMBER_ID if epoch >= 0 or self.is_alive(core, now) else ErrorCode.NONE

    def state(self, core: Core, now: Moment) -> str:
        """The state as clients see it; unknown until the members have timed out."""
        return UNKNOWN_STATE if self.is_alive(core, now) else State.EMPTY.value

    def tombstones(self) -> list[RecordBytes]:
        """The records that delete the group.

        Kafka fails on a tombstone of a member whose assignment is not deleted, and of a group whose members are not
        deleted. Records with higher types depend on records with lower types, so the highest type comes first.
        """
        return [(key, None) for key in sorted(self.keys, key=_type, reverse=True)]


def _type(key: bytes) -> int:
    return int.from_bytes(key[:2], "big", signed=True)


def _group_id(key: bytes) -> str | None:
    """The group id of a record: each key begins with its type and the group id. None if it cannot be decoded."""
    length = int.from_bytes(key[2:4], "big", signed=True)
    name = key[4 : 4 + length]
    if len(key) < 4 or length < 0 or len(name) < length:
        return None
    try:
        return bytes(name).decode()
    except UnicodeDecodeError:
        return None


def replay(core: Core, key: bytes, value: bytes | None) -> bool:
    """Apply a record of an unsupported type; returns False if its group cannot be determined."""
    group_id = _group_id(key)
    if group_id is None:
        return False
    group = core.unserved.get(group_id)
    if value is None:
        if group is not None:
            group.keys.discard(bytes(key))
            if not group.keys:
                del core.unserved[group_id]
                if core.offsets.of_group(group_id) or core.offsets.pending_of(group_id):
                    core.groups.setdefault(group_id, Group(group_id, None))
        return True
    kind = _KIND_OF_RECORD.get(_type(key), UNKNOWN)
    if _type(key) == _OBSOLETE_TYPE or (kind == UNKNOWN and _is_served(core, group_id)):
        return True
    if group is None:
        group = core.unserved[group_id] = UnservedGroup(group_id, kind)
        # Offsets that were loaded first created a simple group of this id.
        core.groups.pop(group_id, None)
    elif kind != UNKNOWN:
        group.kind = kind
    group.keys.add(bytes(key))
    return True


def _is_served(core: Core, group_id: str) -> bool:
    """Whether the group has a supported type. A later version of Kafka may write further records of such a group."""
    if group_id in core.consumer_groups or group_id in core.share_groups:
        return True
    classic = core.groups.get(group_id)
    return classic is not None and classic.protocol_type is not None


def list_groups(core: Core, now: Moment) -> list[ListedGroup]:
    """The groups in the form of ListGroups."""
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type="" if group.kind == UNKNOWN else group.kind,
            group_state=group.state(core, now),
            group_type=group.kind,
        )
        for group in core.unserved.values()
    ]


def join_converted(
    core: Core, call: Call[JoinGroupRequest], request: JoinGroupRequest, group: UnservedGroup, now: Moment
) -> Effects | None:
    """Convert an empty group to a classic group; None if the join is rejected in any case."""
    if group.kind not in _CONVERTIBLE:
        return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if request.member_id or not request.protocols:
        return None  # The join is rejected in any case and must not convert the group.
    if not core.config.min_session_timeout_ms <= request.session_timeout_ms <= core.config.max_session_timeout_ms:
        return None
    if group.is_alive(core, now):
        # Clients wait and retry on this error.
        return [refuse_join(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    return [core.append(group.tombstones(), JoinConvertedGroup(call, request))]


def conversion_appended(core: Core, follow_up: JoinConvertedGroup, error: ErrorCode, now: Moment) -> Effects:
    """Handle the JoinGroup again, now that the replayed tombstones deleted the group that it named."""
    call, request = follow_up
    if error is not ErrorCode.NONE:
        return [refuse(call, error)]
    return join(core, call, request, now)


def delete_offsets(
    core: Core, call: Call[OffsetDeleteRequest], request: OffsetDeleteRequest, group: UnservedGroup, now: Moment
) -> Effects | None:
    """Delete offsets of an empty group; None: answer as if the group did not exist."""
    if group.kind not in _CONVERTIBLE:
        return None
    if group.is_alive(core, now):
        return [refuse(call, ErrorCode.NON_EMPTY_GROUP)]
    return delete_unsubscribed(core, call, request, Group(group.group_id, None), now)


def delete(core: Core, call: Call[DeleteGroup], _request: DeleteGroup, group: UnservedGroup, now: Moment) -> Effects:
    """Delete a group. A group of an unknown type is rejected: it may have state elsewhere."""
    error = ErrorCode.NONE
    if group.kind not in _CONVERTIBLE:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif group.is_alive(core, now):
        error = ErrorCode.NON_EMPTY_GROUP
    result = DeletableGroupResult(group_id=group.group_id, error_code=error)
    if error is not ErrorCode.NONE:
        return [Reply(call, result)]
    records = some_tombstones(core, group.group_id)
    if len(records) == MOST_TOMBSTONES:
        return core.reply_after_append(call, records, None)
    return core.reply_after_append(call, [*records, *group.tombstones()], result)
