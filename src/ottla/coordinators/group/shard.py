"""One partition of `__consumer_offsets`: the groups whose ids hash to it, and their offsets.

`step` and `handle_timer` return effects. Durable state changes only in `replay`, which is called once for each record
of the log in its order, whether the record was just appended or is loaded after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import chain
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.coordinators.events import Appended, Call, Effects, Moment, log_line
from ottla.coordinators.expiry_clock import ExpiryClock
from ottla.coordinators.group import admin, expiry, kinds, offsets, session, transactional_offsets, unserved
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.config import GroupConfig
from ottla.coordinators.group.consumer import admin as consumer_admin
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.heartbeat import heartbeat as consumer_heartbeat
from ottla.coordinators.group.consumer.heartbeat import upgrade_appended
from ottla.coordinators.group.consumer.matching import matching_elapsed
from ottla.coordinators.group.consumer.migration import downgrade_appended, replacement_appended
from ottla.coordinators.group.core import NO_PRODUCER_ID, Core
from ottla.coordinators.group.errors import answer_appended
from ottla.coordinators.group.events import (
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    ForceRebalance,
    ListGroups,
    TopicsDeleted,
)
from ottla.coordinators.group.follow_ups import (
    AnswerCall,
    AnswerShareHeartbeat,
    AnswerSyncs,
    ChangeShareState,
    JoinConvertedGroup,
    JoinDowngradedGroup,
    JoinUpgradedGroup,
    RebalanceDowngradedGroup,
    ReleaseShareRecords,
    ReplaceStaticMember,
)
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.join import conversion_appended, join, static_member_appended
from ottla.coordinators.group.kinds import KINDS
from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.offset_store import Committed, OffsetStore
from ottla.coordinators.group.rebalance import (
    fail_joins,
    fail_syncs,
    join_timer_elapsed,
    prepare,
    sync_timer_elapsed,
)
from ottla.coordinators.group.share import admin as share_admin
from ottla.coordinators.group.share import heartbeat as share_members
from ottla.coordinators.group.share import initialization as share_states
from ottla.coordinators.group.share import offsets as share_offsets
from ottla.coordinators.group.share.events import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ForgetShares,
    InitializeShares,
    ListShares,
    ResetShares,
)
from ottla.coordinators.group.share.group import ShareGroup
from ottla.coordinators.group.states import State
from ottla.coordinators.group.streams import admin as streams_admin
from ottla.coordinators.group.streams.events import DescribeStreamsGroup, StreamsHeartbeat
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.heartbeat import heartbeat as streams_heartbeat
from ottla.coordinators.group.sync import assignment_appended, sync
from ottla.coordinators.group.timer_keys import Kind, TimerKey
from ottla.coordinators.group.unserved_group import UnservedGroup
from ottla.metadata.image import MetadataImage
from ottla.protocol.group_records import (
    RECORD_TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

Q = TypeVar("Q")


def _row(kind: type[Q], handler: Callable[[Core, Call[Q], Q, Moment], Effects]) -> tuple[type, Callable[..., Effects]]:
    """Return a row of the table of handlers; type checkers compare the handler with the kind of its requests."""
    return kind, handler


_HANDLERS = dict(
    [
        _row(JoinGroupRequest, join),
        _row(SyncGroupRequest, sync),
        _row(HeartbeatRequest, session.heartbeat),
        _row(LeaveGroupRequest, session.leave),
        _row(OffsetCommitRequest, offsets.commit),
        _row(ConsumerGroupHeartbeatRequest, consumer_heartbeat),
        _row(ShareGroupHeartbeatRequest, share_members.heartbeat),
        _row(StreamsHeartbeat, streams_heartbeat),
        _row(DescribeStreamsGroup, streams_admin.describe),
        _row(TxnOffsetCommitRequest, transactional_offsets.commit),
        _row(FetchOffsets, offsets.fetch),
        _row(OffsetDeleteRequest, offsets.delete),
        _row(TopicsDeleted, offsets.topics_deleted),
        _row(ListGroups, admin.list_groups),
        _row(DescribeGroup, admin.describe),
        _row(DescribeConsumerGroup, consumer_admin.describe),
        _row(DescribeShareGroup, share_admin.describe),
        _row(ListShares, share_offsets.list_shares),
        _row(AlterShareOffsets, share_offsets.alter),
        _row(DeleteShareOffsets, share_offsets.delete),
        _row(DeleteGroup, admin.delete),
        _row(ForceRebalance, admin.force_rebalance),
    ]
)
_FOLLOW_UPS: dict[type, Callable[[Core, Any, ErrorCode, Moment], Effects]] = {
    AnswerCall: answer_appended,
    AnswerSyncs: assignment_appended,
    JoinConvertedGroup: conversion_appended,
    JoinUpgradedGroup: upgrade_appended,
    RebalanceDowngradedGroup: downgrade_appended,
    JoinDowngradedGroup: replacement_appended,
    ReplaceStaticMember: static_member_appended,
    AnswerShareHeartbeat: share_members.heartbeat_appended,
    ReleaseShareRecords: share_members.removal_appended,
    ChangeShareState: share_states.change_appended,
}
_EXPIRY: TimerKey = (Kind.EXPIRY, "", "")


class Phase(Enum):
    """A shard loads its log, then serves requests, until it is unloaded."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


class GroupShard:
    """The groups of one partition. Not thread safe."""

    def __init__(self, config: GroupConfig, random_bytes: Callable[[int], bytes]) -> None:
        self.phase = Phase.LOADING
        self.skipped_records = 0
        """The number of loaded records of unknown types whose group cannot be determined."""
        self._core = Core(config, random_bytes)
        self._expiry_clock = ExpiryClock()

    @property
    def groups(self) -> dict[str, Group]:
        """The groups by id; read only."""
        return self._core.groups

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets of all groups; read only."""
        return self._core.offsets

    @property
    def unserved(self) -> Mapping[str, UnservedGroup]:
        """The groups of unsupported types, by id."""
        return self._core.unserved

    @property
    def consumer_groups(self) -> Mapping[str, ConsumerGroup]:
        """The consumer groups by id."""
        return self._core.consumer_groups

    @property
    def share_groups(self) -> Mapping[str, ShareGroup]:
        """The share groups by id."""
        return self._core.share_groups

    @property
    def streams_groups(self) -> Mapping[str, StreamsGroup]:
        """The streams groups by id."""
        return self._core.streams_groups

    def metadata_changed(self, image: MetadataImage, *, has_new_topics: bool = True) -> None:
        """Take in the cluster's metadata: topics, and settings of groups. Call it before the first request, too.

        A consumer group whose topics changed compares them with the next heartbeat of a member.
        """
        core = self._core
        before = core.topics.by_name
        core.image, core.topics = image, Topics.of(image)
        if has_new_topics:
            core.topics_created_at = image.offset
        if before is not image.topics_by_name:
            for group in chain.from_iterable(kind.groups(core).values() for kind in KINDS):
                if any(before.get(name) is not image.topics_by_name.get(name) for name in group.state.topics):
                    group.state.request_comparison()

    # -- requests ----------------------------------------------------------------------------------------------

    def step(self, call: Call[Any], now: Moment) -> Effects:
        """Decide on one request."""
        core = self._core
        effects = kinds.answer(core, call, now)
        return _HANDLERS[type(call.request)](core, call, call.request, now) if effects is None else effects

    def handle_appended(self, event: Appended, now: Moment) -> Effects:
        """Replay the records of an append that succeeded, then do what follows from its outcome."""
        records, follow_up, producer_id = self._core.appends.take(event.append_id)
        if event.error is ErrorCode.NONE:
            for position, (key, value) in enumerate(records):
                self.replay(key, value, event.base_offset + position, producer_id=producer_id, now=now)
        if follow_up is None:
            return []
        return _FOLLOW_UPS[type(follow_up)](self._core, follow_up, event.error, now)

    def shares_initialized(self, request: InitializeShares, done: Partitions) -> Effects:
        """Take in which partitions of `request` got their share state."""
        return share_states.initialized(self._core, request, done)

    def shares_deleted(self, group_id: str, error: ErrorCode) -> Effects:
        """Take in whether the share state of a group was deleted."""
        return share_states.deleted(self._core, group_id, error)

    def shares_reset(self, effect: ResetShares, failed: Mapping[tuple[Uuid, int], ErrorCode]) -> Effects:
        """Take in the partitions whose start offset could not be altered; the others were."""
        return share_offsets.reset(self._core, effect, failed)

    def shares_forgotten(self, effect: ForgetShares, failed: Mapping[Uuid, ErrorCode]) -> Effects:
        """Take in the topics whose share state could not be deleted; the state of the others was."""
        return share_offsets.forgotten(self._core, effect, failed)

    # -- time --------------------------------------------------------------------------------------------------

    def next_timer_ms(self) -> int | None:
        """When the next timer elapses, on the monotonic clock; None if no timer is set."""
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
        if kind is Kind.MATCHING:
            return matching_elapsed(self._core, self._core.consumer_groups.get(group_id), group_id, now)
        modern = kinds.modern_group(self._core, group_id)
        if modern is not None:
            return modern[0].timer_elapsed(self._core, kind, modern[1], member_id, now)
        group = self._core.groups.get(group_id)
        if group is None or kind is Kind.REBALANCE:
            return []
        if kind is Kind.JOIN:
            return join_timer_elapsed(self._core, group, now)
        if kind is Kind.SYNC:
            return sync_timer_elapsed(self._core, group, now)
        return session.session_elapsed(self._core, group, member_id, now)

    def _schedule_expiry(self, now: Moment) -> bool:
        """Set the expiry timer; returns True if the wall clock was set since the previous check.

        In that case the check is skipped: a wall clock that is wrong for a short time must not expire offsets.
        """
        interval_ms = self._core.config.offsets_retention_check_interval_ms
        self._core.timers.set(_EXPIRY, now.monotonic_ms + interval_ms)
        return self._expiry_clock.was_set(now)

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
        """Apply one record of the log; pass `producer_id` only if its batch is part of a transaction.

        Records of groups of unsupported types are only noted, to preserve the groups. Raises DecodeError for a record
        of a known type that cannot be decoded.
        """
        record = decode_keyed(RECORD_TYPES, key, value)
        match record:
            case None:
                if not unserved.replay(self._core, key, value):
                    self.skipped_records += 1
            case OffsetCommitKey() as name, (OffsetCommitValue() | None) as row:
                self._replay_offset(name, row, offset, producer_id)
            case GroupMetadataKey() as name, (GroupMetadataValue() | None) as row:
                self._replay_group(name.group, row, now)
            case other, row:
                kinds.REPLAYS[type(other)](self._core, other, row)

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
        """Create a simple group (no protocol type) for a commit without members."""
        core = self._core
        if not core.has_group(group_id):
            core.groups[group_id] = Group(group_id, None)

    def _replay_group(self, group_id: str, row: GroupMetadataValue | None, now: Moment | None) -> None:
        core = self._core
        if row is None:
            group = core.groups.pop(group_id, None)
            if group is not None:
                core.forget_group(group)
                group.lifecycle.state = State.DEAD
            return
        known = core.groups.get(group_id)
        # A conversion creates a classic group, if only in place of a simple group, which has no members.
        is_converted = bool(row.members) and (known is None or known.protocol_type is None)
        if self.phase is Phase.LOADING or now is None or is_converted:
            core.unserved.pop(group_id, None)
            core.consumer_groups.pop(group_id, None)
            core.streams_groups.pop(group_id, None)
            core.groups[group_id] = Group.from_record(group_id, row)
            return
        if known is not None:
            known.persisted(row, now.wall_ms)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker."""
        for group_id in self._core.offsets.end_transaction(producer_id, commit=commit):
            self._ensure_group(group_id)

    def loaded(self, now: Moment, topic_id: Callable[[str], Uuid | None] | None = None) -> Effects:
        """Start serving requests after the log was replayed; the members' session timers start.

        `topic_id(name)` returns the id of a topic, None if it does not exist. It serves to delete the offsets of topics
        that were deleted while the shard was not loaded.
        """
        self.phase = Phase.ACTIVE
        self._schedule_expiry(now)
        effects = offsets.delete_outdated(self._core, topic_id) if topic_id is not None else []
        for group in self._core.groups.values():
            effects.append(log_line("Loaded classic group %s with %d members.", group.group_id, len(group.members)))
            for member in group.members.values():
                self._core.expect_heartbeat(group, member, now)
            if len(group.members) > self._core.config.max_size:
                # The limit was lowered: the members that rejoin last will be rejected.
                reason = (
                    f"Freshly-loaded group {group.group_id} (size {len(group.members)}) is over capacity"
                    f" {self._core.config.max_size}."
                    " Rebalancing in order to give a chance for consumers to commit offsets"
                )
                effects += prepare(self._core, group, now, reason)
            elif group.rebalance_is_due:
                reason = f"Freshly-loaded group {group.group_id} had not completed its downgrade to classic"
                effects += prepare(self._core, group, now, reason)
        for kind in KINDS:
            for modern in kind.groups(self._core).values():
                effects += kind.loaded(self._core, modern, now)
        return effects

    def unload(self, error: ErrorCode, now: Moment) -> Effects:
        """Answer parked requests with `error`, because this broker no longer leads the partition."""
        self.phase = Phase.UNLOADED
        effects: Effects = share_states.unload(self._core, error)
        for group in self._core.groups.values():
            effects.append(
                log_line("[GroupId=%s] Unloading group metadata for generation %d.", group.group_id, group.generation)
            )
            effects += fail_joins(group, error)
            effects += fail_syncs(self._core, group, error, now)
            self._core.forget_group(group)
        self._core.timers.cancel(_EXPIRY)
        return effects

    # -- for tests ---------------------------------------------------------------------------------------------

    def committed_offsets(self) -> dict[tuple[str, str, int], Committed]:
        """All committed offsets by (group, topic, partition)."""
        return self._core.offsets.snapshot()

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert not self._core.appends.in_flight, "the outcome of an append was not reported"
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
                assert alive, f"{group_id}: {member.member_id} never times out"
            for member_id in group.pending_joins:
                assert timers.deadline((Kind.SESSION, group_id, member_id)) is not None
        for group_id in self._core.offsets.groups():
            core = self._core
            assert core.has_group(group_id), f"{group_id} has only offsets"
        for modern in chain.from_iterable(kind.groups(self._core).values() for kind in KINDS):
            group_id = modern.group_id
            assert group_id not in self._core.groups, f"{group_id} has two types"
            modern.validate()
            for member_id in modern.members:
                assert timers.deadline((Kind.SESSION, group_id, member_id)) is not None, f"{member_id} never times out"
        for group_id, other in self._core.unserved.items():
            assert group_id not in self._core.groups, f"{group_id} has two types"
            assert other.keys, f"{group_id} has no records"
