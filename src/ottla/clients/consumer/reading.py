"""From partitions to buffered records: finds where to read each of them, and fetches from there.

A position comes from the group's committed offset or, if there is none, from the leader as auto.offset.reset says. A
leader that is new is asked whether it has what was read so far (KIP-320). A replica in the client's rack serves fetches
until metadata.max.age.ms is over or it fails (KIP-392). One
question of a kind is in flight for a partition, and one fetch for a broker; an answer to a question that is out of date
(`PartitionState.version`) changes nothing. What is asked ends up in the effects that the next `advance` hands out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.clients.cluster import Backoff, ClusterView, Node
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effects import COORDINATOR, Effect, ForgetCoordinator, Send
from ottla.clients.consumer.fetching import FetchLimits, FetchSession, Wanted
from ottla.clients.consumer.membership import COORDINATOR_MOVED
from ottla.clients.consumer.options import RESETS
from ottla.clients.consumer.positions import PartitionState, Phase, Positions
from ottla.clients.consumer.requests import (
    NEWEST_OFFSETS_BY_NAME,
    epoch_ends_request,
    list_offsets_request,
    offset_fetch_request,
    read_offsets,
)
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    CorruptRecords,
    LogTruncated,
    OffsetOutOfRange,
    UnsupportedByBroker,
    error_for,
)
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.offset_for_leader_epoch import EpochEndOffset
from ottla.records.column_kernels import whole_batches

logger = logging.getLogger("ottla.clients.consumer")

_LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)  # fmt: skip
_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


class Reading:
    """The part of a consumer's core that keeps the buffers full. `options` are read settings by Pythonic name."""

    def __init__(self, options: Mapping[str, Any], view: ClusterView) -> None:
        self.options = options
        self.view = view
        self.positions = Positions()
        self.backoff = Backoff(options["retry_backoff_ms"], options["retry_backoff_max_ms"])
        self.group_id: str | None = options["group_id"] or None
        self.isolation = int(options["isolation_level"] == "read_committed")
        self.error: ClientError | None = None
        """Raised by the next poll, once."""
        self._reset: int | None = RESETS[options["auto_offset_reset"]]
        self._limits = FetchLimits(
            options["fetch_min_bytes"], options["fetch_max_wait_ms"], self.isolation, options["client_rack"]
        )
        self._sessions: dict[int, FetchSession] = {}
        self._buffered_bytes = 0
        self._offsets_in_flight = False
        self._committed: dict[TopicPartition, int] = {}
        self._effects: list[Effect] = []
        self._retry_ms: list[float] = []
        self.wants_advance = False
        """Whether a call of the user's side left something to do for `advance`."""

    @property
    def buffered_bytes(self) -> int:
        """Fetched bytes that wait to be polled."""
        return self._buffered_bytes

    def committed_offset(self, tp: TopicPartition) -> int | None:
        """What is known to be committed; None if that is not known."""
        return self._committed.get(tp)

    def _wait(self, until_ms: float) -> None:
        self._retry_ms.append(until_ms)

    # -- positions ---------------------------------------------------------------------------------------------

    def want(self) -> None:
        """The user asks for his partitions (a poll, a position): look for where to read, and fetch."""
        if self.positions.want():
            self.wants_advance = True

    def _plan_positions(self, now_ms: float) -> None:
        committed: list[PartitionState] = []
        resets: dict[int, list[PartitionState]] = {}
        checks: dict[int, list[PartitionState]] = {}
        for state in self.positions:
            if not state.wanted or state.asking or state.error is not None:
                continue
            if state.phase is Phase.FETCH and not state.must_check(self.view.leader_epoch(*state.tp)):
                continue
            if now_ms < state.not_before_ms:
                self._wait(state.not_before_ms)
                continue
            if state.phase is Phase.COMMITTED and self.group_id is None:
                self._without_position(state)
            if state.phase is Phase.COMMITTED:
                committed.append(state)
            elif (leader := self.view.leader(*state.tp)) is not None:
                (resets if state.phase is Phase.RESET else checks).setdefault(leader, []).append(state)
        if committed and not self._offsets_in_flight:
            self._ask_committed(committed)
        for node, states in resets.items():
            self._ask_reset(node, states)
        for node, states in checks.items():
            self._ask_check(node, states)

    def _answered(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, PartitionState]:
        """Those of the partitions that still are of the version that was asked about; nothing is asked any more."""
        current = {tp: s for tp, version in asked.items() if (s := self.positions.get(tp)) and s.version == version}
        for state in current.values():
            state.asking = False
        return current

    def _without_position(self, state: PartitionState) -> None:
        if self._reset is None:
            state.error = OffsetOutOfRange(
                f"{state.tp} has no committed offset and auto.offset.reset is none: seek, or change that",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        else:
            state.reset(self._reset)

    def _ask_committed(self, states: list[PartitionState]) -> None:
        asked = {state.tp: state.version for state in states}
        for state in states:
            state.asking = True
        self._offsets_in_flight = True

        def then(outcome: Any, now_ms: float) -> None:
            self._offsets_in_flight = False
            self.wants_advance = True
            current = self._answered(asked).values()
            try:
                if isinstance(outcome, ClientError):
                    raise outcome
                rows = read_offsets(outcome)
            except ClientError as error:
                if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
                    self._effects.append(ForgetCoordinator())
                if not error.retriable:
                    self.error = error
                for state in current:
                    state.not_before_ms = now_ms + self.backoff.initial_ms
                return
            for state in current:
                row = rows.get(state.tp)
                if row is None:
                    self._without_position(state)
                else:
                    state.seek(row.offset, row.leader_epoch)
                    self._committed[state.tp] = row.offset

        self._effects.append(Send(COORDINATOR, self.ask_offsets(asked), then, max_version=NEWEST_OFFSETS_BY_NAME))

    def ask_offsets(self, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
        """The request for the group's committed offsets; at most version NEWEST_OFFSETS_BY_NAME."""
        return offset_fetch_request(self.group_id or "", partitions)

    def list_offsets_request(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        """The request for the offsets of timestamps, to one leader."""
        return list_offsets_request(wanted, self.view, self.isolation, self.options["request_timeout_ms"])

    def _ask_reset(self, node: int, states: list[PartitionState]) -> None:
        asked = {state.tp: state.version for state in states}
        wanted = {state.tp: state.reset_timestamp for state in states}
        for state in states:
            state.asking = True

        def then(outcome: Any, now_ms: float) -> None:
            self.wants_advance = True
            current = self._answered(asked)
            for state in current.values():
                state.not_before_ms = now_ms + self.backoff.initial_ms
            if isinstance(outcome, ClientError):
                self.view.invalidate()
                if not outcome.retriable:
                    self.error = outcome
                return
            for topic in outcome.topics:
                for row in topic.partitions:
                    found = current.get(TopicPartition(topic.name, row.partition_index))
                    if found is not None:
                        self._position_found(found, row.error_code, row.offset, row.leader_epoch)

        self._effects.append(Send(node, self.list_offsets_request(wanted), then))

    def _position_found(self, state: PartitionState, code: int, offset: int, epoch: int) -> None:
        if code:
            self.view.invalidate()
            error = error_for(code)
            if not error.retriable:
                state.error = error
        elif offset < 0:  # nothing is as new as the timestamp: the end
            state.reset(-1)
        else:
            state.seek(offset, epoch)
            state.checked_epoch = self.view.leader_epoch(*state.tp)

    def _ask_check(self, node: int, states: list[PartitionState]) -> None:
        for state in states:
            self._buffered_bytes -= state.buffered_bytes
            state.restart()
            state.asking = True
        asked = {state.tp: state.version for state in states}
        epochs = {state.tp: self.view.leader_epoch(*state.tp) for state in states}
        request = epoch_ends_request({state.tp: state.epoch for state in states}, self.view)

        def then(outcome: Any, now_ms: float) -> None:
            self.wants_advance = True
            current = self._answered(asked)
            for state in current.values():
                state.not_before_ms = now_ms + self.backoff.initial_ms
            if isinstance(outcome, UnsupportedByBroker):  # so old a broker has no truth to offer
                for tp, state in current.items():
                    state.checked_epoch = epochs[tp]
                    state.not_before_ms = 0.0
                return
            if isinstance(outcome, ClientError):
                self.view.invalidate()
                return
            for topic in outcome.topics:
                for row in topic.partitions:
                    found = current.get(TopicPartition(topic.topic, row.partition))
                    if found is not None:
                        self._checked(found, row, epochs[found.tp])

        self._effects.append(Send(node, request, then))

    def _checked(self, state: PartitionState, row: EpochEndOffset, leader_epoch: int) -> None:
        if row.error_code:
            self.view.invalidate()
            error = error_for(row.error_code, f"{state.tp}: {error_for(row.error_code)}")
            if not error.retriable:
                state.error = error
            return
        state.checked_epoch = leader_epoch
        state.not_before_ms = 0.0
        diverged_at = row.end_offset if row.end_offset >= 0 and row.leader_epoch >= 0 else None
        if diverged_at is not None and diverged_at >= state.offset:
            return
        text = (
            f"{state.tp}: the new leader's log "
            + ("does not know what was read" if diverged_at is None else f"went another way at offset {diverged_at}")
            + f", before the position {state.offset}: records that were read are lost"
        )
        if self._reset is None:
            state.error = LogTruncated(
                f"{text}; seek, to go on from there", topic=state.tp.topic, partition=state.tp.partition,
                offset=state.offset, diverged_at=diverged_at,
            )  # fmt: skip
            return
        logger.warning("%s; goes on there", text)
        if diverged_at is None:
            state.reset(self._reset)
        else:
            state.seek(diverged_at, row.leader_epoch)
            state.checked_epoch = leader_epoch

    # -- fetching ----------------------------------------------------------------------------------------------

    def _plan_fetches(self, now_ms: float) -> None:
        wanted, full = self._wanted(now_ms)
        room = self.options["queued_max_bytes"] - self._buffered_bytes
        if room <= 0 and wanted:
            room += self._drop_what_is_paused()
        for node in {*wanted, *self._sessions}:
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = FetchSession(self._limits)
            rows = wanted.get(node)
            # A fetch that leaves out what is full would wait for the others and hold up what is read the fastest.
            if not rows or session.in_flight or node in full or room <= 0 or node not in self.view.nodes:
                continue
            if now_ms < session.not_before_ms:
                self._wait(session.not_before_ms)
                continue
            self._fetch(node, session, rows, min(self.options["fetch_max_bytes"], room))

    def _drop_what_is_paused(self) -> int:
        """Forget what was fetched of paused partitions, if nothing else takes the memory; the bytes that are free now.

        Else the others would never be read, for what is paused may be so for ever.
        """
        if any(state.buffered and not state.paused for state in self.positions):
            return 0
        freed = sum(state.drop_buffer() for state in self.positions)
        self._buffered_bytes -= freed
        return freed

    def _wanted(self, now_ms: float) -> tuple[dict[int, dict[TopicPartition, Wanted]], set[int]]:
        most = self.options["max_partition_fetch_bytes"]
        wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        full: set[int] = set()
        for state in self.positions:
            if not state.fetchable or state.asking:
                continue
            if now_ms < state.not_before_ms:
                self._wait(state.not_before_ms)
                continue
            leader = self.view.leader(*state.tp)
            if leader is None:
                continue
            node = leader
            if state.preferred >= 0:
                if now_ms < state.preferred_until_ms and state.preferred in self.view.nodes:
                    node = state.preferred
                else:
                    state.preferred = -1
            if state.buffered_bytes >= most:
                full.add(node)
                continue
            topic_id, epoch = self.view.topic_id(state.tp.topic), self.view.leader_epoch(*state.tp)
            wanted.setdefault(node, {})[state.tp] = Wanted(topic_id, state.fetch_offset, most, epoch)
        return wanted, full

    def _fetch(self, node: int, session: FetchSession, rows: dict[TopicPartition, Wanted], max_bytes: int) -> None:
        request, max_version = session.build(rows, max_bytes)
        asked = {tp: state.version for tp in rows if (state := self.positions.get(tp)) is not None}
        ids = {row.topic_id: tp.topic for tp, row in rows.items()}

        def then(outcome: Any, now_ms: float) -> None:
            self.wants_advance = True
            if isinstance(outcome, ClientError):
                session.failed()
                session.not_before_ms = now_ms + self.backoff.initial_ms
                self.view.invalidate()
                for tp in asked:
                    if (state := self.positions.get(tp)) is not None and state.preferred == node:
                        state.preferred = -1
                if not outcome.retriable:
                    self.error = outcome
                return
            self._fetched(node, session, outcome, rows, asked, ids, now_ms)

        timeout_ms = self.options["request_timeout_ms"] + self.options["fetch_max_wait_ms"]
        self._effects.append(Send(node, request, then, timeout_ms, max_version))

    def _fetched(
        self,
        node: int,
        session: FetchSession,
        response: FetchResponse,
        rows: Mapping[TopicPartition, Wanted],
        asked: Mapping[TopicPartition, int],
        ids: Mapping[bytes, str],
        now_ms: float,
    ) -> None:
        if not session.answered(response):
            session.not_before_ms = now_ms + (self.backoff.initial_ms if response.error_code not in _SESSION else 0)
            return
        for node_row in response.node_endpoints:
            self.view.add_node(Node(node_row.node_id, node_row.host, node_row.port, node_row.rack))
        for topic in response.responses:
            name = topic.topic or ids.get(topic.topic_id, "")
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                state = self.positions.get(tp)
                if state is None or tp not in asked or state.version != asked[tp] or state.phase is not Phase.FETCH:
                    continue
                if rows[tp].offset == state.fetch_offset:  # else another broker was quicker, after a change of leaders
                    self._fetched_of(node, state, row, rows[tp].offset, now_ms)

    def _fetched_of(self, node: int, state: PartitionState, row: PartitionData, offset: int, now_ms: float) -> None:
        if row.error_code:
            self._fetch_refused(node, state, row, offset, now_ms)
            return
        state.high_watermark, state.log_start_offset = row.high_watermark, row.log_start_offset
        state.last_stable_offset = row.last_stable_offset
        if row.preferred_read_replica >= 0:
            state.preferred = row.preferred_read_replica
            state.preferred_until_ms = now_ms + self.options["metadata_max_age_ms"]
        if not row.records:
            return
        buffer = memoryview(row.records)
        next_offset, end = whole_batches(buffer)
        if end == 0:
            state.error = CorruptRecords(
                f"{state.tp} at offset {offset}: no whole batch within {len(buffer)} bytes; raise "
                "max.partition.fetch.bytes and fetch.max.bytes if the record is larger",
                topic=state.tp.topic, partition=state.tp.partition, offset=offset,
            )  # fmt: skip
            return
        aborted = [(r.producer_id, r.first_offset) for r in row.aborted_transactions or ()] if self.isolation else []
        check = self.options["check_crcs"]
        state.buffered.append(Fetched(state.tp, buffer[:end], offset, aborted=aborted, check_crcs=check))
        state.buffered_bytes += end
        self._buffered_bytes += end
        state.fetch_offset = max(state.fetch_offset, next_offset)

    def _fetch_refused(self, node: int, state: PartitionState, row: PartitionData, offset: int, now_ms: float) -> None:
        code = row.error_code
        state.not_before_ms = now_ms + self.backoff.initial_ms
        if code in _LEADER_MOVED:
            state.preferred = -1
            hint = row.current_leader
            if self.view.set_leader(*state.tp, hint.leader_id, hint.leader_epoch):
                state.not_before_ms = 0.0  # KIP-951: no need to ask who leads now
            else:
                self.view.invalidate()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred == node and node != self.view.leader(*state.tp):
                state.preferred = -1  # a follower may be behind: ask the leader
            elif state.buffered:
                pass  # hand over what there is first
            elif self._reset is None:
                state.error = OffsetOutOfRange(
                    f"{state.tp}: offset {offset} is not in the log (any more) and auto.offset.reset is none: seek",
                    code=ErrorCode.OFFSET_OUT_OF_RANGE,
                )
            else:
                logger.warning("%s: offset %d is not in the log; reset as auto.offset.reset says", state.tp, offset)
                state.reset(self._reset)
        elif code == ErrorCode.UNKNOWN_SERVER_ERROR:  # as Java's consumer does: it may be the broker's bad moment
            logger.warning("%s: the broker failed at offset %d without a reason; asked again", state.tp, offset)
        elif not error_for(code).retriable:
            state.error = error_for(code, f"{state.tp}: {error_for(code)}")
