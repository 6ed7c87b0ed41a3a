"""Records of `__share_group_state`: the state of share partitions. KIP-932, KIP-1226.

Before the key stands its type, before the value its version, as 16-bit numbers. A snapshot replaces the state, an
update is merged into it. A null value of a snapshot deletes.
"""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.keyed import decode_keyed, encode_key, encode_value
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, Uuid, tagged
from ottla.protocol.wire import Buffer

__all__ = [
    "RECORD_TYPES",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StateBatch",
    "decode_record",
    "encode_key",
    "encode_value",
]


class ShareSnapshotKey(Message, key=0, versions="0"):
    """Key (0) of a snapshot."""

    group_id: str = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    """The complete state of a share partition."""

    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = tagged(0, 0, default=-1)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    """An element of `state_batches`: the state of a range of offsets."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareUpdateKey(Message, key=1, versions="0"):
    """Key (1) of an update."""

    group_id: str = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    """A change of a share partition's state since its snapshot; a start offset of -1 does not change it."""

    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = tagged(0, 0, default=-1)
    state_batches: list[StateBatch] = []


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """Key and value of a record, None for a tombstone; None if the type is unknown. Raises DecodeError."""
    return decode_keyed(RECORD_TYPES, key, value)
