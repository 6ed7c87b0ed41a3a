"""One partition of `__share_group_state`: the state of the share partitions whose keys hash to it.

`step` and `handle_timer` return effects. Durable state changes only in `replay`, which is called once for each record
of the log in its order, whether the record was just appended or is loaded after a restart.

A write appends an update. After `update_records_per_snapshot` updates it appends a snapshot of everything. Regularly,
share partitions that are not written get a snapshot too, so that the log can be pruned below the earliest snapshot that
counts. The topic is not compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordinators.events import Append, Appended, Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.share.events import (
    DeleteState,
    InitializeState,
    PruneLog,
    ReadState,
    ReadSummary,
    Result,
    ShareKey,
    TopicsDeleted,
    WriteState,
)
from ottla.coordinators.share.state_batches import RecordState, combine
from ottla.coordinators.share.stored import (
    UNCHANGED,
    Stored,
    from_snapshot,
    from_update,
    tombstone,
    update_record,
)
from ottla.protocol.share_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_record,
)

R = TypeVar("R")

NO_PRODUCER_ID = -1
_STATES = frozenset(RecordState)
# Snapshots of share partitions that are not written are appended in batches of this size, one per timer.
MOST_SNAPSHOTS_IN_BATCH = 100
# Limits of Ottla: a write is merged in one step, and a state that does not fit into a record could never be stored
# again. A share partition has at most group.share.partition.max.record.locks offsets in flight.
MOST_BATCHES_IN_WRITE, MOST_BATCHES = 10_000, 40_000


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    """Defaults are Kafka's; times in milliseconds."""

    update_records_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms"""
    cold_snapshot_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""


def error_response(call: Call[Request[R]], error: ErrorCode) -> R:
    """The response to a call with an error."""
    # All requests but TopicsDeleted declare Result, which a type checker does not follow through the condition.
    return cast("R", None if isinstance(call.request, TopicsDeleted) else Result(error))


class ShareCoordinatorShard:
    """The share partitions of one partition of the topic. Not thread safe."""

    def __init__(self, config: ShareCoordinatorConfig) -> None:
        self.skipped_records = 0
        """The number of loaded records of unknown types."""
        self._config = config
        self._states: dict[ShareKey, Stored] = {}
        # Calls and records of appends whose outcome has not been reported, by the ids of the appends.
        self._in_flight: dict[int, tuple[Call[Any] | None, object, tuple[RecordBytes, ...]]] = {}
        self._next_append_id = 0
        # The log may be pruned below it if no share partition is left.
        self._last_tombstone_offset = 0
        self._pruned_offset = 0
        self._prune_at_ms: int | None = None

    @property
    def states(self) -> Mapping[ShareKey, Stored]:
        """The state of each share partition; read only."""
        return self._states

    def loaded(self, now: Moment) -> Effects:
        """Begin to serve requests."""
        self._prune_at_ms = now.monotonic_ms + self._config.prune_interval_ms
        return []

    # -- requests --------------------------------------------------------------------------------------------------

    def step(self, call: Call[Any], now: Moment) -> Effects:
        """Decide on one request."""
        match call.request:
            case InitializeState() as request:
                return self._initialize(call, request, now)
            case ReadState() as request:
                return self._read(call, request, now)
            case ReadSummary() as request:
                return self._summarize(call, request)
            case WriteState() as request:
                return self._write(call, request, now)
            case DeleteState() as request:
                return self._delete(call, request)
            case TopicsDeleted() as request:
                return self._topics_deleted(call, request)
            case _:
                raise TypeError(f"{call.request!r} is not a request to the share coordinator")

    def _initialize(self, call: Call[InitializeState], request: InitializeState, now: Moment) -> Effects:
        stored = self._states.get(request.key)
        if request.key.partition < 0:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")]
        if stored is not None and request.keeps_existing and request.topic_exists:
            return [Reply(call, Result())]
        if stored is not None and request.state_epoch != UNCHANGED and stored.state_epoch > request.state_epoch:
            return [_refuse(call, ErrorCode.FENCED_STATE_EPOCH)]
        if not request.topic_exists:
            return [_refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        fresh = Stored(
            snapshot_epoch=0 if stored is None else stored.snapshot_epoch + 1,
            state_epoch=request.state_epoch,
            leader_epoch=0,
            start_offset=request.start_offset,
            delivery_complete_count=-1 if request.start_offset == UNCHANGED else 0,
            batches=(),
            create_timestamp=now.wall_ms,
            write_timestamp=now.wall_ms,
        )
        return [self._append(call, Result(), fresh.snapshot_record(request.key))]

    def _read(self, call: Call[ReadState], request: ReadState, now: Moment) -> Effects:
        stored = self._states.get(request.key)
        if request.key.partition < 0:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")]
        if stored is None:
            message = "Read operation on uninitialized share partition not allowed."
            return [_refuse(call, ErrorCode.INVALID_REQUEST, message)]
        if stored.fenced_below_leader_epoch > request.leader_epoch:
            return [_refuse(call, ErrorCode.FENCED_LEADER_EPOCH)]
        if not request.topic_exists:
            return [_refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        result = Result(
            state_epoch=stored.state_epoch,
            leader_epoch=request.leader_epoch,
            start_offset=stored.start_offset,
            delivery_complete_count=stored.delivery_complete_count,
            batches=stored.batches,
        )
        if stored.fenced_below_leader_epoch == request.leader_epoch:
            return [Reply(call, result)]
        # Earlier leaders must be fenced durably, before the new leader delivers records.
        write = WriteState(
            request.key,
            stored.state_epoch,
            request.leader_epoch,
            stored.start_offset,
            stored.delivery_complete_count,
            (),
        )
        return [
            self._append(call, result, self._record(replace(stored, leader_epoch=request.leader_epoch), write, now))
        ]

    def _summarize(self, call: Call[ReadSummary], request: ReadSummary) -> Effects:
        stored = self._states.get(request.key)
        if request.key.partition < 0:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")]
        if not request.topic_exists:
            return [_refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        if stored is None:
            return [Reply(call, Result(start_offset=-1))]
        result = Result(
            state_epoch=stored.state_epoch,
            leader_epoch=stored.leader_epoch,
            start_offset=stored.start_offset,
            delivery_complete_count=stored.delivery_complete_count,
        )
        return [Reply(call, result)]

    def _write(self, call: Call[WriteState], request: WriteState, now: Moment) -> Effects:
        stored = self._states.get(request.key)
        if request.key.partition < 0:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")]
        if stored is None:
            message = "Write operation on uninitialized share partition not allowed."
            return [_refuse(call, ErrorCode.INVALID_REQUEST, message)]
        if request.leader_epoch != UNCHANGED and stored.fenced_below_leader_epoch > request.leader_epoch:
            return [_refuse(call, ErrorCode.FENCED_LEADER_EPOCH)]
        if request.state_epoch != UNCHANGED and stored.state_epoch > request.state_epoch:
            return [_refuse(call, ErrorCode.FENCED_STATE_EPOCH)]
        if not request.topic_exists:
            return [_refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        problem = _problem(stored, request)
        if problem is not None:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, problem)]
        return [self._append(call, Result(), self._record(stored, request, now))]

    def _delete(self, call: Call[DeleteState], request: DeleteState) -> Effects:
        if request.key.partition < 0:
            return [_refuse(call, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")]
        if not request.topic_exists:
            return [_refuse(call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        if request.key not in self._states:
            return [Reply(call, Result())]
        return [self._append(call, Result(), tombstone(request.key))]

    def _topics_deleted(self, call: Call[TopicsDeleted], request: TopicsDeleted) -> Effects:
        keys = [key for key in self._states if key.topic_id in request.topic_ids]
        if not keys:
            return [Reply(call, None)]
        batches = range(0, len(keys), MOST_SNAPSHOTS_IN_BATCH)
        effects: Effects = []
        for start in batches:
            is_last = start == batches[-1]
            records = [tombstone(key) for key in keys[start : start + MOST_SNAPSHOTS_IN_BATCH]]
            effects.append(self._append(call if is_last else None, None, *records))
        return effects

    def _record(self, stored: Stored, write: WriteState, now: Moment) -> RecordBytes:
        if stored.updates < self._config.update_records_per_snapshot:
            count = write.delivery_complete_count
            return update_record(write.key, stored, write.start_offset, count, write.batches)
        start_offset = stored.start_offset if write.start_offset == UNCHANGED else write.start_offset
        snapshot = replace(
            stored,
            snapshot_epoch=stored.snapshot_epoch + 1,
            start_offset=start_offset,
            delivery_complete_count=write.delivery_complete_count,
            batches=combine(stored.batches, write.batches, start_offset),
            create_timestamp=now.wall_ms,
            write_timestamp=now.wall_ms,
        )
        return snapshot.snapshot_record(write.key)

    def _append(self, call: Call[Request[R]] | None, result: R | None, *records: RecordBytes) -> Append:
        self._next_append_id += 1
        self._in_flight[self._next_append_id] = (call, result, records)
        return Append(self._next_append_id, records)

    def handle_appended(self, event: Appended, now: Moment) -> Effects:  # noqa: ARG002 - the runtime's signature
        """Replay the records of an append that succeeded, and answer the request."""
        call, result, records = self._in_flight.pop(event.append_id)
        if event.error is not ErrorCode.NONE:
            return [] if call is None else [Reply(call, error_response(call, event.error))]
        for position, (key, value) in enumerate(records):
            self.replay(key, value, event.base_offset + position)
        return [] if call is None else [Reply(call, result)]

    # -- time ------------------------------------------------------------------------------------------------------

    def next_timer_ms(self) -> int | None:
        """When the next timer elapses, on the monotonic clock; None if no timer is set."""
        return self._prune_at_ms

    def handle_timer(self, now: Moment) -> Effects:
        """Append snapshots of share partitions that were not written for long, and prune the log."""
        if self._prune_at_ms is None or now.monotonic_ms < self._prune_at_ms:
            return []
        cold = self._cold(now)
        if len(cold) > MOST_SNAPSHOTS_IN_BATCH:
            self._prune_at_ms = now.monotonic_ms + 1
        else:
            self._prune_at_ms = now.monotonic_ms + self._config.prune_interval_ms
        effects: Effects = []
        if cold:
            records = []
            for key in cold[:MOST_SNAPSHOTS_IN_BATCH]:
                stored = self._states[key]
                fresh = replace(stored, snapshot_epoch=stored.snapshot_epoch + 1, write_timestamp=now.wall_ms)
                records.append(fresh.snapshot_record(key))
            effects.append(self._append(None, None, *records))
        prune = self._redundant_offset()
        if prune > self._pruned_offset:
            self._pruned_offset = prune
            effects.append(PruneLog(prune))
        return effects

    def _cold(self, now: Moment) -> list[ShareKey]:
        """The share partitions whose last snapshot is old, unless each one already has a snapshot of this kind."""
        states = self._states
        if all(stored.create_timestamp != stored.write_timestamp for stored in states.values()):
            return []
        interval_ms = self._config.cold_snapshot_interval_ms
        return [key for key, stored in states.items() if now.wall_ms - stored.write_timestamp >= interval_ms]

    def _redundant_offset(self) -> int:
        """The offset below which no record counts."""
        if not self._states:
            return self._last_tombstone_offset
        return min(stored.snapshot_offset for stored in self._states.values())

    def unload(self, error: ErrorCode, now: Moment) -> Effects:  # noqa: ARG002 - the runtime's signature
        """Answer the requests whose append has no outcome yet."""
        self._prune_at_ms = None
        in_flight, self._in_flight = self._in_flight, {}
        return [Reply(call, error_response(call, error)) for call, _, _ in in_flight.values() if call is not None]

    # -- the log ---------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, *, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record of the log. Raises DecodeError for a record of a known type that cannot be decoded."""
        del producer_id  # share state is not written in transactions
        match decode_record(key, value):
            case ShareSnapshotKey() as name, (ShareSnapshotValue() | None) as snapshot:
                self._replay_snapshot(ShareKey(name.group_id, name.topic_id, name.partition), snapshot, offset)
            case ShareUpdateKey() as name, ShareUpdateValue() as update:
                share = ShareKey(name.group_id, name.topic_id, name.partition)
                stored = self._states.get(share)
                self._states[share] = from_update(update) if stored is None else stored.after_update(update)
            case _:
                self.skipped_records += 1

    def _replay_snapshot(self, share: ShareKey, value: ShareSnapshotValue | None, offset: int) -> None:
        stored = self._states.get(share)
        if value is None:
            self._states.pop(share, None)
            self._last_tombstone_offset = offset
        else:
            self._states[share] = (
                from_snapshot(value, offset) if stored is None else stored.after_snapshot(value, offset)
            )

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker: share state is not written in transactions."""

    def validate(self) -> None:
        """Check the invariants. For tests."""
        for stored in self._states.values():
            last = stored.start_offset - 1
            for batch in stored.batches:
                assert last < batch.first_offset <= batch.last_offset, stored
                last = batch.last_offset
            assert stored.leader_epoch <= stored.fenced_below_leader_epoch, stored
            assert stored.updates <= self._config.update_records_per_snapshot, stored


def _problem(stored: Stored, write: WriteState) -> str | None:
    """Why a write would make the state unusable for the share partition's leader; None if it would not."""
    count = len(write.batches)
    if count > MOST_BATCHES_IN_WRITE or len(stored.batches) + count > MOST_BATCHES:
        return f"{count} state batches are too many for a share partition that has {len(stored.batches)}"
    for batch in write.batches:
        is_range = 0 <= batch.first_offset <= batch.last_offset
        if not is_range or batch.delivery_state not in _STATES or batch.delivery_count < 0:
            return f"Invalid state batch: {batch}"
    return None


def _refuse(call: Call[Request[Result]], error: ErrorCode, message: str | None = None) -> Reply[Result]:
    return Reply(call, Result(error, message))
