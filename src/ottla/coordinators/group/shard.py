"""One partition of `__consumer_offsets`: the groups whose ids hash to it, and their offsets.

`step` and `handle_timer` decide and return effects; what is durable changes only in `replay`, once for each record
that is in the log, in its order, whether it was just appended or is read after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.coordinators.group import admin, expiry, offsets, session, unserved
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.errors import answer_appended
from ottla.coordinators.group.events import (
    Appended,
    Call,
    DeleteGroup,
    DescribeGroup,
    Effects,
    FetchOffsets,
    ForceRebalance,
    ListGroups,
    Moment,
    TopicsDeleted,
    log_line,
)
from ottla.coordinators.group.follow_ups import AnswerCall, AnswerSyncs, JoinConvertedGroup, ReplaceStaticMember
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.join import join, static_member_appended
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.rebalance import (
    fail_joins,
    fail_syncs,
    join_timer_elapsed,
    prepare,
    sync_timer_elapsed,
)
from ottla.coordinators.group.states import State
from ottla.coordinators.group.sync import assignment_appended, sync
from ottla.coordinators.group.timers import Kind, TimerKey
from ottla.protocol.group_records import (
    RECORD_TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest

_HANDLERS: dict[type, Callable[[Core, Call, Any, Moment], Effects]] = {
    JoinGroupRequest: join,
    SyncGroupRequest: sync,
    HeartbeatRequest: session.heartbeat,
    LeaveGroupRequest: session.leave,
    OffsetCommitRequest: offsets.commit,
    FetchOffsets: offsets.fetch,
    OffsetDeleteRequest: offsets.delete,
    TopicsDeleted: offsets.topics_deleted,
    ListGroups: admin.list_groups,
    DescribeGroup: admin.describe,
    DeleteGroup: admin.delete,
    ForceRebalance: admin.force_rebalance,
}
_FOLLOW_UPS: dict[type, Callable[[Core, Any, ErrorCode, Moment], Effects]] = {
    AnswerCall: answer_appended,
    AnswerSyncs: assignment_appended,
    JoinConvertedGroup: unserved.conversion_appended,
    ReplaceStaticMember: static_member_appended,
}
_KNOWN_RECORDS = {kind: RECORD_TYPES[kind] for kind in (0, 1, 2)}
_EXPIRY: TimerKey = (Kind.EXPIRY, "", "")
CLOCK_JUMP_MS = 600_000
NO_PRODUCER_ID = -1


class Phase(Enum):
    """A shard loads its log, then serves, until it is unloaded."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


class GroupShard:
    """The groups of one partition. Not thread safe."""

    def __init__(self, config: GroupConfig, random_bytes: Callable[[int], bytes]) -> None:
        self.phase = Phase.LOADING
        self.skipped_records = 0
        """Records whose kind is unknown and whose group cannot be recognized, seen while loading."""
        self._core = Core(config, random_bytes)
        # How far the wall clock was ahead of the steady one at the last look for expired offsets.
        self._wall_ahead_ms: int | None = None

    @property
    def groups(self) -> dict[str, Group]:
        """The groups by id; not to be changed."""
        return self._core.groups

    @property
    def unserved(self) -> Mapping[str, unserved.UnservedGroup]:
        """The groups of kinds that are not served, by id."""
        return self._core.unserved

    # -- requests ----------------------------------------------------------------------------------------------

    def step(self, call: Call, now: Moment) -> Effects:
        """Decide on one request."""
        core, handler = self._core, _HANDLERS[type(call.request)]
        if core.unserved:
            effects = unserved.answer(core, call, now)
            if effects is not None:
                return effects
        return handler(core, call, call.request, now)

    def handle_appended(self, event: Appended, now: Moment) -> Effects:
        """Replay the records of an append that succeeded, then do what follows from its outcome."""
        records, follow_up = self._core.in_flight.pop(event.append_id)
        if event.error is ErrorCode.NONE:
            for position, (key, value) in enumerate(records):
                self.replay(key, value, event.base_offset + position, now=now)
        if follow_up is None:
            return []
        return _FOLLOW_UPS[type(follow_up)](self._core, follow_up, event.error, now)

    # -- time --------------------------------------------------------------------------------------------------

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called, on the steady clock; None if never."""
        return self._core.timers.next_ms()

    def handle_timer(self, now: Moment) -> Effects:
        """Handle one timer that has elapsed; call again until `next_timer_ms` is later than now."""
        key = self._core.timers.pop_due(now.monotonic_ms)
        if key is None:
            return []
        kind, group_id, member_id = key
        if kind is Kind.EXPIRY:
            clock_was_set = self._schedule_expiry(now)
            return [] if clock_was_set else expiry.expire(self._core, now)
        group = self._core.groups.get(group_id)
        if group is None:
            return []
        if kind is Kind.JOIN:
            return join_timer_elapsed(self._core, group, now)
        if kind is Kind.SYNC:
            return sync_timer_elapsed(self._core, group, now)
        return session.session_elapsed(self._core, group, member_id, now)

    def _schedule_expiry(self, now: Moment) -> bool:
        """Whether the wall clock was set since the last look: what is old now is looked at in the next one.

        Who sets it wrong for a moment must not lose offsets by it.
        """
        interval_ms = self._core.config.offsets_retention_check_interval_ms
        self._core.timers.set(_EXPIRY, now.monotonic_ms + interval_ms)
        before_ms, self._wall_ahead_ms = self._wall_ahead_ms, now.wall_ms - now.monotonic_ms
        return before_ms is not None and abs(self._wall_ahead_ms - before_ms) >= CLOCK_JUMP_MS

    # -- the log -----------------------------------------------------------------------------------------------

    def replay(
        self,
        key: bytes,
        value: bytes | None,
        offset: int,
        *,
        producer_id: int = NO_PRODUCER_ID,
        now: Moment | None = None,
    ) -> None:
        """Take in one record of the log; `producer_id` only if its batch is part of a transaction.

        Records of groups that are not served here are noted, so that the groups are left as they are. Raises
        DecodeError for a known kind that cannot be read.
        """
        record = decode_keyed(_KNOWN_RECORDS, key, value)
        match record:
            case None:
                if not unserved.replay(self._core, key, value):
                    self.skipped_records += 1
            case OffsetCommitKey() as name, (OffsetCommitValue() | None) as row:
                self._replay_offset(name, row, offset, producer_id)
            case GroupMetadataKey() as name, (GroupMetadataValue() | None) as row:
                self._replay_group(name.group, row, now)

    def _replay_offset(
        self, key: OffsetCommitKey, row: OffsetCommitValue | None, offset: int, producer_id: int
    ) -> None:
        core = self._core
        if row is None:
            core.offsets.remove(key.group, key.topic, key.partition)
            return
        expires_ms = None if row.expire_timestamp == -1 else row.expire_timestamp
        committed = Committed(
            row.offset, row.leader_epoch, row.metadata, row.commit_timestamp, expires_ms, row.topic_id, offset
        )
        if producer_id == NO_PRODUCER_ID:
            core.offsets.put(key.group, key.topic, key.partition, committed)
        else:
            core.offsets.put_pending(producer_id, key.group, key.topic, key.partition, committed)
        self._ensure_group(key.group)

    def _ensure_group(self, group_id: str) -> None:
        """Who commits without members has a group nevertheless, one without a protocol type."""
        if group_id not in self._core.groups and group_id not in self._core.unserved:
            self._core.groups[group_id] = Group(group_id, None)

    def _replay_group(self, group_id: str, row: GroupMetadataValue | None, now: Moment | None) -> None:
        core = self._core
        if row is None:
            group = core.groups.pop(group_id, None)
            if group is not None:
                core.forget_group(group)
                group.state = State.DEAD
            return
        if self.phase is Phase.LOADING or now is None:
            core.unserved.pop(group_id, None)
            core.groups[group_id] = Group.from_record(group_id, row)
            return
        group = core.groups.get(group_id)
        if group is not None:
            group.persisted(row, now.wall_ms)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Take in a transaction's marker."""
        for group_id in self._core.offsets.end_transaction(producer_id, commit=commit):
            self._ensure_group(group_id)

    def loaded(self, now: Moment, topic_id: Callable[[str], Uuid | None] | None = None) -> Effects:
        """The whole log was replayed: from now on requests are served, and members must be heard of.

        `topic_id(name)` is the id of a topic, None if there is no such one: what was committed to topics that went
        while nobody was there to be told (`TopicsDeleted`) goes now.
        """
        self.phase = Phase.ACTIVE
        self._core.loaded_ms = now.monotonic_ms
        self._schedule_expiry(now)
        effects = offsets.forget_gone(self._core, topic_id) if topic_id is not None else []
        for group in self._core.groups.values():
            effects.append(log_line("Loaded classic group %s with %d members.", group.group_id, len(group.members)))
            for member in group.members.values():
                self._core.expect_heartbeat(group, member, now)
            if len(group.members) > self._core.config.max_size:
                # The limit was lowered: the members that rejoin last are refused.
                reason = (
                    f"Freshly-loaded group {group.group_id} (size {len(group.members)}) is over capacity"
                    f" {self._core.config.max_size}."
                    " Rebalancing in order to give a chance for consumers to commit offsets"
                )
                effects += prepare(self._core, group, now, reason)
        return effects

    def unload(self, error: ErrorCode, now: Moment) -> Effects:
        """The partition is led elsewhere, or gone: parked requests are answered with `error`."""
        self.phase = Phase.UNLOADED
        effects: Effects = []
        for group in self._core.groups.values():
            effects.append(
                log_line("[GroupId=%s] Unloading group metadata for generation %d.", group.group_id, group.generation)
            )
            effects += fail_joins(group, error)
            effects += fail_syncs(self._core, group, error, now)
            self._core.forget_group(group)
        self._core.timers.cancel(_EXPIRY)
        return effects

    # -- for tests and the curious -----------------------------------------------------------------------------

    def committed_offsets(self) -> dict[tuple[str, str, int], Committed]:
        """All committed offsets by (group, topic, partition)."""
        return self._core.offsets.snapshot()

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self._core.in_flight, "the outcome of an append was not reported"
        timers = self._core.timers
        for group in self._core.groups.values():
            group.validate()
            group_id = group.group_id
            if group.state is State.PREPARING:
                assert timers.deadline((Kind.JOIN, group_id, "")) is not None, f"{group_id}: the join phase never ends"
            if group.state is State.COMPLETING:
                assert timers.deadline((Kind.SYNC, group_id, "")) is not None, f"{group_id}: the sync phase never ends"
            for member in group.members.values():
                alive = member.is_kept_alive or timers.deadline((Kind.SESSION, group_id, member.member_id)) is not None
                assert alive, f"{group_id}: {member.member_id} would stay for ever"
            for member_id in group.pending_joins:
                assert timers.deadline((Kind.SESSION, group_id, member_id)) is not None
        for group_id in self._core.offsets.groups():
            assert group_id in self._core.groups or group_id in self._core.unserved, f"{group_id} has only offsets"
        for group_id, other in self._core.unserved.items():
            assert group_id not in self._core.groups, f"{group_id} is of two kinds"
            assert other.keys, f"{group_id} has no records"
