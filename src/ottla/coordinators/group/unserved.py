"""Groups of unsupported types, which a later version of Kafka wrote.

The records stay in the log, and the offsets of these groups do not expire, so that Kafka can serve the groups again. No
request changes such a group.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.unserved_group import UnservedGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.list_groups import ListedGroup

UNKNOWN = "unknown"
# Partitions of a share group, and partition counts of a streams group, which only early releases wrote. Later records
# repeat what they say.
_OBSOLETE_TYPES = frozenset({9, 18})
UNKNOWN_STATE = "Unknown"


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
    if _type(key) in _OBSOLETE_TYPES or _is_served(core, group_id):
        return True
    if group is None:
        group = core.unserved[group_id] = UnservedGroup(group_id)
        # Offsets that were loaded first created a simple group of this id.
        core.groups.pop(group_id, None)
    group.keys.add(bytes(key))
    return True


def _is_served(core: Core, group_id: str) -> bool:
    """Whether the group has a supported type. A later version of Kafka may write further records of such a group."""
    classic = core.groups.get(group_id)
    is_simple = classic is not None and classic.protocol_type is None
    return core.has_group(group_id) and group_id not in core.unserved and not is_simple


def list_groups(core: Core) -> list[ListedGroup]:
    """The groups in the form of ListGroups."""
    return [
        ListedGroup(group_id=group_id, protocol_type="", group_state=UNKNOWN_STATE, group_type=UNKNOWN)
        for group_id in core.unserved
    ]


def refuse_classic(
    _core: Core, call: Call[JoinGroupRequest], _request: JoinGroupRequest, _group: UnservedGroup, _now: Moment
) -> Effects:
    """Refuse a member of the classic protocol."""
    return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]


def refuse_deletion(
    _core: Core, call: Call[DeleteGroup], _request: DeleteGroup, group: UnservedGroup, _now: Moment
) -> Effects:
    """Refuse to delete the group: it may have state elsewhere."""
    result = DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    return [Reply(call, result)]
