"""The state of one share partition as the share coordinator stores it, and its records."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.share.events import ShareKey
from ottla.coordinators.share.state_batches import StateBatch, combine
from ottla.protocol import share_records
from ottla.protocol.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    encode_key,
    encode_value,
)

UNCHANGED = -1


@dataclass(frozen=True, slots=True)
class Stored:
    """The state of a share partition. Fields have Kafka's names; epochs only grow while the partition is shared."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    create_timestamp: int
    write_timestamp: int
    # Not stored: derived from the records while they are replayed.
    fenced_below_leader_epoch: int = 0
    updates: int = 0
    """Updates since the last snapshot."""
    snapshot_offset: int = -1
    """The offset of the last snapshot in the log. Earlier records of the share partition are obsolete."""

    def after_snapshot(self, value: ShareSnapshotValue, offset: int) -> Stored:
        """The state after a further snapshot."""
        fresh = from_snapshot(value, offset)
        return replace(
            fresh, fenced_below_leader_epoch=max(self.fenced_below_leader_epoch, fresh.fenced_below_leader_epoch)
        )

    def after_update(self, value: ShareUpdateValue) -> Stored:
        """The state after an update."""
        start_offset = self.start_offset if value.start_offset == UNCHANGED else value.start_offset
        return replace(
            self,
            start_offset=start_offset,
            leader_epoch=self.leader_epoch if value.leader_epoch == UNCHANGED else value.leader_epoch,
            delivery_complete_count=value.delivery_complete_count,
            batches=combine(self.batches, _batches(value.state_batches), start_offset),
            fenced_below_leader_epoch=max(self.fenced_below_leader_epoch, value.leader_epoch),
            updates=self.updates + 1,
        )

    def snapshot_record(self, key: ShareKey) -> RecordBytes:
        """The record that stores all of it."""
        value = ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.create_timestamp,
            write_timestamp=self.write_timestamp,
            state_batches=[share_records.StateBatch(*batch) for batch in self.batches],
        )
        return encode_key(ShareSnapshotKey(*key)), encode_value(value, 0)


def from_snapshot(value: ShareSnapshotValue, offset: int) -> Stored:
    """The state that a snapshot stores."""
    return Stored(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        combine((), _batches(value.state_batches), UNCHANGED),
        value.create_timestamp,
        value.write_timestamp,
        fenced_below_leader_epoch=value.leader_epoch,
        snapshot_offset=offset,
    )


def from_update(value: ShareUpdateValue) -> Stored:
    """The state of an update whose snapshot was pruned: a newer snapshot or a tombstone follows in the log."""
    batches = combine((), _batches(value.state_batches), UNCHANGED)
    count = value.delivery_complete_count
    stored = Stored(value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, count, batches, 0, 0)
    return replace(stored, fenced_below_leader_epoch=value.leader_epoch)


def update_record(
    key: ShareKey, stored: Stored, start_offset: int, delivery_complete_count: int, batches: tuple[StateBatch, ...]
) -> RecordBytes:
    """The record of an update of `stored`."""
    value = ShareUpdateValue(
        snapshot_epoch=stored.snapshot_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=[share_records.StateBatch(*batch) for batch in combine((), batches, start_offset)],
    )
    return encode_key(ShareUpdateKey(*key)), encode_value(value, 0)


def tombstone(key: ShareKey) -> RecordBytes:
    """The record that deletes the state."""
    return encode_key(ShareSnapshotKey(*key)), None


def _batches(rows: list[share_records.StateBatch]) -> list[StateBatch]:
    return [StateBatch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count) for row in rows]
