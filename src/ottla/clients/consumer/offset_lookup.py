"""Looks up positions at the partitions' leaders: offsets of timestamps, and the ends of leader epochs.

A partition in phase RESET gets its position from ListOffsets. A partition whose leader changed is checked with
OffsetForLeaderEpoch before it is fetched again (KIP-320): the new leader returns where the epoch of the last record
that was read ends in its log. If that is below the position, the log was truncated and records that were read are lost.
Then the consumer continues at the point of divergence. With auto.offset.reset=none it raises LogTruncated instead.

Each partition has at most one lookup in flight. All partitions of one leader share a request. A response applies only
to partitions whose position has not been set since the request (`PartitionState.version`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.positions import PartitionState, Phase, Positions
from ottla.clients.consumer.requests import epoch_ends_request, list_offsets_request
from ottla.clients.consumer.settings import LATEST, FetchSettings
from ottla.clients.errors import ClientError, LogTruncated, OffsetOutOfRange, UnsupportedByBroker, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochResponse

logger = logging.getLogger("ottla.clients.consumer")


class _EpochCheck(NamedTuple):
    """A check in flight: the versions of the partitions, and the leader epochs at the time of the request."""

    versions: dict[TopicPartition, int]
    leader_epochs: dict[TopicPartition, int]


class OffsetLookup:
    def __init__(self, settings: FetchSettings, view: ClusterView, positions: Positions, outbox: Outbox) -> None:
        self._settings = settings
        self._view = view
        self._positions = positions
        self._outbox = outbox
        self._resets: dict[EffectId, dict[TopicPartition, int]] = {}
        self._checks: dict[EffectId, _EpochCheck] = {}
        self.next_timer_ms: float | None = None

    def reset(self, state: PartitionState) -> None:
        """Apply auto.offset.reset to a partition without a position or a committed offset."""
        if self._settings.reset_timestamp is None:
            state.lookup.error = OffsetOutOfRange(
                f"{state.tp} has no committed offset and auto.offset.reset=none: call seek, or change the setting",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        else:
            state.reset(self._settings.reset_timestamp)

    def advance(self, now_ms: float) -> None:
        resets: dict[int, list[PartitionState]] = {}
        checks: dict[int, list[PartitionState]] = {}
        self.next_timer_ms = None
        for state in self._positions:
            if not state.wanted or state.lookup.in_flight or state.lookup.error is not None:
                continue
            if state.phase is Phase.UNKNOWN:
                continue
            if state.phase is Phase.FETCH and not state.read.must_check(self._view.leader_epoch(*state.tp)):
                continue
            if now_ms < state.not_before_ms:
                self.next_timer_ms = earliest(self.next_timer_ms, state.not_before_ms)
                continue
            leader = self._view.leader(*state.tp)
            if leader is not None:
                (resets if state.phase is Phase.RESET else checks).setdefault(leader, []).append(state)
        for node, states in resets.items():
            self._send_reset(node, states)
        for node, states in checks.items():
            self._send_check(node, states)

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        versions = self._resets.pop(effect_id, None)
        if versions is not None:
            self._complete_reset(versions, outcome, now_ms)
            return
        check = self._checks.pop(effect_id, None)
        if check is not None:
            self._complete_check(check, outcome, now_ms)

    # -- offsets of timestamps ----------------------------------------------------------------------------------

    def _send_reset(self, node: int, states: list[PartitionState]) -> None:
        wanted = {state.tp: state.lookup.timestamp for state in states}
        settings = self._settings
        request = list_offsets_request(wanted, self._view, settings.isolation_level, settings.request_timeout_ms)
        effect_id = self._outbox.send(Owner.LOOKUPS, node, request)
        self._resets[effect_id] = self._positions.begin_lookup(states)

    def _complete_reset(self, versions: Mapping[TopicPartition, int], outcome: Outcome, now_ms: float) -> None:
        current = self._positions.end_lookup(versions)
        for state in current.values():
            state.not_before_ms = now_ms + self._settings.backoff.initial_ms
        if isinstance(outcome, ClientError):
            self._view.invalidate()
            if not outcome.retriable:
                self._outbox.poll_error = outcome
            return
        assert isinstance(outcome, ListOffsetsResponse)
        for topic in outcome.topics:
            for row in topic.partitions:
                found = current.get(TopicPartition(topic.name, row.partition_index))
                if found is not None:
                    self._apply_offset(found, row.error_code, row.offset, row.leader_epoch)

    def _apply_offset(self, state: PartitionState, code: int, offset: int, epoch: int) -> None:
        if code:
            self._view.invalidate()
            error = error_for(code)
            if not error.retriable:
                state.lookup.error = error
        elif offset < 0:  # no record is as new as the timestamp: start at the end
            state.reset(LATEST)
        else:
            state.seek(offset, epoch)
            state.read.checked = self._view.leader_epoch(*state.tp)

    # -- ends of leader epochs ----------------------------------------------------------------------------------

    def _send_check(self, node: int, states: list[PartitionState]) -> None:
        for state in states:
            state.refetch()
        request = epoch_ends_request({state.tp: state.read.epoch for state in states}, self._view)
        effect_id = self._outbox.send(Owner.LOOKUPS, node, request)
        epochs = {state.tp: self._view.leader_epoch(*state.tp) for state in states}
        self._checks[effect_id] = _EpochCheck(self._positions.begin_lookup(states), epochs)

    def _complete_check(self, check: _EpochCheck, outcome: Outcome, now_ms: float) -> None:
        current = self._positions.end_lookup(check.versions)
        for state in current.values():
            state.not_before_ms = now_ms + self._settings.backoff.initial_ms
        if isinstance(outcome, UnsupportedByBroker):  # a broker without this API cannot detect truncation
            for tp, state in current.items():
                state.read.checked = check.leader_epochs[tp]
                state.not_before_ms = 0.0
            return
        if isinstance(outcome, ClientError):
            self._view.invalidate()
            return
        assert isinstance(outcome, OffsetForLeaderEpochResponse)
        for topic in outcome.topics:
            for row in topic.partitions:
                found = current.get(TopicPartition(topic.topic, row.partition))
                if found is not None:
                    self._apply_epoch_end(found, row, check.leader_epochs[found.tp])

    def _apply_epoch_end(self, state: PartitionState, row: EpochEndOffset, leader_epoch: int) -> None:
        if row.error_code:
            self._view.invalidate()
            error = error_for(row.error_code, f"{state.tp}: {error_for(row.error_code)}")
            if not error.retriable:
                state.lookup.error = error
            return
        state.read.checked = leader_epoch
        state.not_before_ms = 0.0
        diverged_at = row.end_offset if row.end_offset >= 0 and row.leader_epoch >= 0 else None
        if diverged_at is not None and diverged_at >= state.offset:
            return
        epoch = state.read.epoch
        text = (
            f"Truncation detected for partition {state.tp} at offset {state.offset}: the new leader's log "
            + (f"has no leader epoch {epoch}" if diverged_at is None else f"diverges at offset {diverged_at}")
            + ", so records that were read are lost"
        )
        if self._settings.reset_timestamp is None:
            state.lookup.error = LogTruncated(
                f"{text}; call seek to continue", topic=state.tp.topic, partition=state.tp.partition,
                offset=state.offset, diverged_at=diverged_at,
            )  # fmt: skip
        elif diverged_at is None:
            logger.warning("%s; resetting the position", text)
            state.reset(self._settings.reset_timestamp)
        else:
            logger.warning("%s; continuing there", text)
            state.seek(diverged_at, row.leader_epoch)
            state.read.checked = leader_epoch
