"""The group's committed offsets: looks them up for new partitions, and commits the positions of the user.

A partition without a position starts at its committed offset, or where auto.offset.reset says if there is none. One
lookup for all such partitions is in flight at a time.

An automatic commit commits `processed`, the offsets after the records of earlier polls, of the partitions where it
differs from the offset that is known to be committed. Once per RECOMMIT_MS it commits all of them, because a broker
deletes an offset that was committed long ago. Commits are sent one at a time, in order (see `EffectRunner`), so that an
older position never replaces a newer one.

A commit as a member carries the member's generation, and the coordinator rejects it after a rebalance. `Assignments`
protects a retry, which would carry the new generation: it fails if one of its partitions was reassigned since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ottla.clients.consumer.effects import COORDINATOR, EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.fetch_core import FetchCore
from ottla.clients.consumer.heartbeat_membership import HeartbeatMembership
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.positions import PartitionState, Phase
from ottla.clients.consumer.requests import (
    COORDINATOR_MOVED,
    commit_request,
    newest_version,
    offset_fetch_request,
    read_offsets,
    topic_names,
)
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.consumer.subscription import Subscription
from ottla.clients.errors import BrokerError, ClientError, RebalanceInProgress, UnknownMember, error_for
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

logger = logging.getLogger("ottla.clients.consumer")

RECOMMIT_MS: Final = 3_600_000
"""The interval at which an automatic commit includes positions that have not changed."""
GroupMembership: TypeAlias = Membership | HeartbeatMembership
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Assignments = Mapping[TopicPartition, PartitionState | None]
"""The states of partitions at one time. A partition that was revoked and assigned again has another state object."""
_OUTDATED: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_DELETED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_CODES: Final = frozenset(int(code) for code in ErrorCode)


class _Lookup(NamedTuple):
    request: OffsetFetchRequest
    versions: dict[TopicPartition, int]


class _AutoCommit(NamedTuple):
    id: EffectId
    request: OffsetCommitRequest


class Commits:
    def __init__(
        self,
        settings: GroupSettings,
        fetch: FetchCore,
        membership: GroupMembership,
        subscription: Subscription,
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._membership = membership
        self._subscription = subscription
        self._outbox = outbox
        self._committed: dict[TopicPartition, int] = {}
        self._lookups: dict[EffectId, _Lookup] = {}
        self._auto_commit: _AutoCommit | None = None
        self._commit_due_ms: float | None = None
        self._recommit_ms = 0.0
        self._lookup_timer_ms: float | None = None

    def begin_poll(self, now_ms: float) -> None:
        interval_ms = self._settings.auto_commit_interval_ms
        if interval_ms is not None and self._commit_due_ms is None:
            self._commit_due_ms = now_ms + interval_ms
            self._recommit_ms = now_ms + RECOMMIT_MS
            self._outbox.needs_advance = True

    def committed_offset(self, tp: TopicPartition) -> int | None:
        return self._committed.get(tp)

    def forget_unassigned(self) -> None:
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in self._fetch.positions}

    # -- events -------------------------------------------------------------------------------------------------

    def advance(self, now_ms: float) -> None:
        self._advance_auto_commit(now_ms)
        states, self._lookup_timer_ms = self._fetch.unpositioned(now_ms)
        if states and not self._lookups:
            request = self._lookup_request(states)
            effect_id = self._send(request)
            self._lookups[effect_id] = _Lookup(request, self._fetch.positions.begin_lookup(states))

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        lookup = self._lookups.pop(effect_id, None)
        if lookup is not None:
            self._complete_lookup(lookup, outcome, now_ms)
        elif self._auto_commit is not None and self._auto_commit.id == effect_id:
            request, self._auto_commit = self._auto_commit.request, None
            self._complete_auto_commit(request, outcome, now_ms)

    def next_timer_ms(self) -> float | None:
        return earliest(self._lookup_timer_ms, None if self._auto_commit is not None else self._commit_due_ms)

    def _send(self, request: OffsetFetchRequest | OffsetCommitRequest) -> EffectId:
        return self._outbox.send(Owner.COMMITS, COORDINATOR, request, max_version=newest_version(request))

    # -- lookups ------------------------------------------------------------------------------------------------

    def offset_fetch_request(self, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
        return offset_fetch_request(self._settings.group_id, partitions, self._fetch.view)

    def _lookup_request(self, states: Iterable[PartitionState]) -> OffsetFetchRequest:
        """Return the request for the committed offsets of assigned partitions.

        In a KIP-848 group it carries the member epoch: a removed member must not take the offsets of partitions whose
        new owner may commit later ones.
        """
        request = self.offset_fetch_request([state.tp for state in states])
        member = self._membership
        if self._settings.is_broker_assigned and self._subscription.is_group_managed and member.generation >= 0:
            (group,) = request.groups
            group.member_id, group.member_epoch = member.member_id, member.generation
        return request

    def _complete_lookup(self, lookup: _Lookup, outcome: Outcome, now_ms: float) -> None:
        current = self._fetch.positions.end_lookup(lookup.versions).values()
        try:
            if isinstance(outcome, ClientError):
                raise outcome
            assert isinstance(outcome, OffsetFetchResponse)
            rows = read_offsets(lookup.request, outcome)
        except ClientError as error:
            self._check_coordinator(error)
            if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_ID:
                self._fetch.view.invalidate()
            if not error.retriable and not _is_outdated(error):
                self._outbox.poll_error = error
            for state in current:
                state.not_before_ms = now_ms + self._settings.backoff.initial_ms
            return
        for state in current:
            row = rows.get(state.tp)
            if row is None:
                self._fetch.lookup.reset(state)
            else:
                state.seek(row.offset, row.leader_epoch)
                self._committed[state.tp] = row.offset

    def _check_coordinator(self, error: ClientError) -> None:
        if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
            self._outbox.forget_coordinator()

    # -- automatic commits --------------------------------------------------------------------------------------

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after the records of earlier polls, where they differ from the committed offsets."""
        return {
            s.tp: OffsetAndMetadata(processed, s.read.epoch if processed == s.offset else -1)
            for s in self._fetch.positions
            if (processed := s.progress.processed) is not None
            and s.phase is Phase.FETCH
            and self._committed.get(s.tp) != processed
        }

    def _advance_auto_commit(self, now_ms: float) -> None:
        interval_ms = self._settings.auto_commit_interval_ms
        if interval_ms is None or self._commit_due_ms is None or self._auto_commit is not None:
            return
        if now_ms < self._commit_due_ms:
            return
        self._commit_due_ms = now_ms + interval_ms
        if now_ms >= self._recommit_ms:
            self._recommit_ms = now_ms + RECOMMIT_MS
            self._committed.clear()
        offsets = self.processed()
        if not offsets or (self._commits_as_member and self._membership.generation < 0):
            return
        request = self.commit_request(offsets)
        self._auto_commit = _AutoCommit(self._send(request), request)

    def _complete_auto_commit(self, request: OffsetCommitRequest, outcome: Outcome, now_ms: float) -> None:
        if isinstance(outcome, ClientError):
            error: ClientError | None = outcome
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            error = self.apply_commit(request, outcome)
        if error is None:
            return
        self._check_coordinator(error)
        logger.info("Auto-commit failed, retrying: %s", error)
        self._commit_due_ms = min(self._commit_due_ms or now_ms, now_ms + self._settings.backoff.max_ms)

    # -- commits ------------------------------------------------------------------------------------------------

    @property
    def _commits_as_member(self) -> bool:
        return self._subscription.is_group_managed or bool(self._membership.member_id)

    def assignments(self, partitions: Iterable[TopicPartition]) -> Assignments:
        """Return the current states of partitions, to pass to `commit_request` later."""
        return {tp: self._fetch.positions.get(tp) for tp in partitions}

    def commit_request(self, offsets: Offsets, assignments: Assignments | None = None) -> OffsetCommitRequest:
        """Return the request that commits, in at most its `newest_version`.

        Raises IllegalGeneration if a partition was reassigned since `assignments` were taken: the commit would
        overwrite the offset that its new owner has committed. Raises UnknownMember or RebalanceInProgress if the group
        assigns the partitions and this consumer is not a member now: the broker would accept the commit as one of a
        simple consumer, and it would overwrite the offset of another member.
        """
        member = self._membership
        if self._commits_as_member and member.generation < 0:
            if member.leave_reason is not None:
                raise UnknownMember(f"Nothing was committed: {member.leave_reason}")
            raise RebalanceInProgress(
                "Nothing was committed: this consumer is not a member of its group now; poll first"
            )
        for tp, state in (assignments or {}).items() if self._subscription.is_group_managed else ():
            if state is not None and self._fetch.positions.get(tp) is not state:
                reason = f"Nothing was committed: {tp} is not this consumer's any more, the group has rebalanced"
                raise error_for(ErrorCode.ILLEGAL_GENERATION, reason)
        group_id = self._settings.group_id
        if not self._commits_as_member:
            return commit_request(GroupMetadata(group_id), offsets, self._fetch.view, self._settings.commit_metadata)
        by = GroupMetadata(group_id, member.generation, member.member_id, self._settings.instance_id)
        return commit_request(by, offsets, self._fetch.view, self._settings.commit_metadata)

    def apply_commit(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> ClientError | None:
        """Take the response of a commit. Returns the last error of a partition; the other partitions are committed.

        Partitions that were not in the request are ignored.
        """
        error: ClientError | None = None
        offsets = {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in request.topics
            for row in topic.partitions
        }
        names = topic_names(request)
        sent_as = (request.generation_id_or_member_epoch, request.member_id)
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name or names.get(topic.topic_id, ""), row.partition_index)
                if tp not in offsets:
                    continue
                if not row.error_code:
                    self._committed[tp] = offsets[tp]
                    continue
                self._membership.commit_refused(row.error_code, sent_as)
                error = self._commit_error(tp, offsets[tp], row.error_code)
        return error

    def _commit_error(self, tp: TopicPartition, offset: int, code: int) -> ClientError:
        text = ErrorCode(code).text if code in _CODES else str(code)
        error = error_for(code, f"Offset {offset} of {tp} is not committed: {self._membership.leave_reason or text}")
        if code in _DELETED:
            error.retriable = False
            self._fetch.view.invalidate()
        elif code == ErrorCode.STALE_MEMBER_EPOCH:
            error.retriable = True  # the next heartbeat brings the new epoch; `Assignments` protects the retry
        return error


def _is_outdated(error: ClientError) -> bool:
    """Whether a request had an earlier epoch of this member, so that a later one may succeed."""
    return isinstance(error, BrokerError) and error.code in _OUTDATED
