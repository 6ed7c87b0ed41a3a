"""Keeps the buffers of the assigned partitions full.

`advance` groups the partitions that may be fetched by broker: the leader, or the preferred replica in the client's rack
until metadata.max.age.ms has passed or that replica fails (KIP-392). Each broker gets one fetch at a time, so a
partition's records arrive in order. A partition with max.partition.fetch.bytes in its buffer is full. A broker with a
full partition gets no fetch at all: a fetch without the full partition could wait at the broker for records of slower
partitions and delay the partition that is read the fastest.

Invariants: all buffers together hold at most queued.max.bytes and one fetch per broker. A response applies to a
partition only if its `version` and `fetch_offset` are still the same as in the request. One call costs O(partitions).
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from ottla.clients.cluster import NO_NODE, ClusterView, Node
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.fetch_session import FetchSession, WantedPartition
from ottla.clients.consumer.positions import LogBounds, PartitionState, Phase, Positions, PreferredReplica
from ottla.clients.consumer.settings import FetchSettings
from ottla.clients.errors import ClientError, CorruptRecords, OffsetOutOfRange, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.records.column_kernels import whole_batches

logger = logging.getLogger("ottla.clients.consumer")

_LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)  # fmt: skip
_SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


class _Fetch(NamedTuple):
    node: int
    session: FetchSession
    rows: dict[TopicPartition, WantedPartition]
    versions: dict[TopicPartition, int]


class Fetcher:
    def __init__(self, settings: FetchSettings, view: ClusterView, positions: Positions, outbox: Outbox) -> None:
        self._settings = settings
        self._view = view
        self._positions = positions
        self._outbox = outbox
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[EffectId, _Fetch] = {}
        self.next_timer_ms: float | None = None

    def advance(self, now_ms: float) -> None:
        """Issue a fetch to each broker that has none in flight and has partitions to fetch."""
        self.next_timer_ms = None
        wanted, full = self._wanted(now_ms)
        if not wanted:
            return
        free = self._settings.max_buffered_bytes - self._positions.buffered_bytes
        if free <= 0:
            free += self._drop_paused_buffers()
        for node, rows in wanted.items():
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = FetchSession(self._settings)
            if session.in_flight or node in full or free <= 0 or node not in self._view.nodes:
                continue
            if now_ms < session.not_before_ms:
                self.next_timer_ms = earliest(self.next_timer_ms, session.not_before_ms)
                continue
            self._send(node, session, rows, min(self._settings.max_bytes, free))

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        fetch = self._in_flight.pop(effect_id)
        if isinstance(outcome, ClientError):
            self._fail(fetch, outcome, now_ms)
            return
        assert isinstance(outcome, FetchResponse)
        if not fetch.session.apply(outcome):
            delay_ms = 0 if outcome.error_code in _SESSION_ERRORS else self._settings.backoff.initial_ms
            fetch.session.not_before_ms = now_ms + delay_ms
            return
        for endpoint in outcome.node_endpoints:
            self._view.add_node(Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack))
        names = {row.topic_id: tp.topic for tp, row in fetch.rows.items()}
        for topic in outcome.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                self._apply(fetch, TopicPartition(name, row.partition_index), row, now_ms)

    # -- requests -----------------------------------------------------------------------------------------------

    def _wanted(self, now_ms: float) -> tuple[dict[int, dict[TopicPartition, WantedPartition]], set[int]]:
        max_bytes = self._settings.max_partition_bytes
        wanted: dict[int, dict[TopicPartition, WantedPartition]] = {}
        full: set[int] = set()
        for state in self._positions:
            if not state.is_fetchable:
                continue
            if now_ms < state.not_before_ms:
                self.next_timer_ms = earliest(self.next_timer_ms, state.not_before_ms)
                continue
            known = self._view.partition(*state.tp)
            if known is None or known.leader == NO_NODE:
                continue
            node = known.leader if state.preferred.node < 0 else self._replica(state, known.leader, now_ms)
            if state.buffer.size >= max_bytes:
                full.add(node)
                continue
            topic_id = self._view.topic_id(state.tp.topic)
            wanted.setdefault(node, {})[state.tp] = WantedPartition(
                topic_id, state.fetch_offset, max_bytes, known.leader_epoch
            )
        return wanted, full

    def _replica(self, state: PartitionState, leader: int, now_ms: float) -> int:
        """Return the broker to fetch from: the preferred replica, as long as the preference is valid."""
        if now_ms < state.preferred.until_ms and state.preferred.node in self._view.nodes:
            return state.preferred.node
        state.preferred = PreferredReplica()
        return leader

    def _drop_paused_buffers(self) -> int:
        """Drop the buffers of paused partitions if only they have buffered records. Returns the number of bytes freed.

        A partition may stay paused for ever. Its buffer must not keep the other partitions from being fetched.
        """
        if any(state.buffer.parts and not state.paused for state in self._positions):
            return 0
        return sum(state.drop_buffer() for state in self._positions)

    def _send(
        self, node: int, session: FetchSession, rows: dict[TopicPartition, WantedPartition], max_bytes: int
    ) -> None:
        request, max_version = session.build(rows, max_bytes)
        timeout_ms = self._settings.request_timeout_ms + self._settings.max_wait_ms
        effect_id = self._outbox.send(Owner.FETCHES, node, request, timeout_ms=timeout_ms, max_version=max_version)
        versions = {tp: self._positions.of(tp).version for tp in rows}
        self._in_flight[effect_id] = _Fetch(node, session, rows, versions)

    # -- responses ----------------------------------------------------------------------------------------------

    def _fail(self, fetch: _Fetch, error: ClientError, now_ms: float) -> None:
        fetch.session.fail()
        fetch.session.not_before_ms = now_ms + self._settings.backoff.initial_ms
        self._view.invalidate()
        for tp in fetch.rows:
            state = self._positions.get(tp)
            if state is not None and state.preferred.node == fetch.node:
                state.preferred = PreferredReplica()
        if not error.retriable:
            self._outbox.poll_error = error

    def _apply(self, fetch: _Fetch, tp: TopicPartition, row: PartitionData, now_ms: float) -> None:
        state = self._positions.get(tp)
        if state is None or state.version != fetch.versions.get(tp) or state.phase is not Phase.FETCH:
            return
        offset = fetch.rows[tp].offset
        if offset != state.fetch_offset:  # after a change of leaders, another broker responded first
            return
        if row.error_code:
            self._apply_error(fetch.node, state, row, now_ms)
            return
        state.bounds = LogBounds(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if row.preferred_read_replica >= 0:
            until_ms = now_ms + self._settings.metadata_max_age_ms
            state.preferred = PreferredReplica(row.preferred_read_replica, until_ms)
        if row.records:
            self._buffer(state, row, offset)

    def _buffer(self, state: PartitionState, row: PartitionData, offset: int) -> None:
        """Append the whole batches of a response to the partition's buffer.

        A broker may cut the last batch at the size limit; that batch is fetched again.
        """
        buffer = memoryview(row.records or b"")
        next_offset, end = whole_batches(buffer)
        if end == 0:
            state.lookup.error = CorruptRecords(
                f"{state.tp} at offset {offset}: no whole batch within {len(buffer)} bytes; raise "
                "max.partition.fetch.bytes and fetch.max.bytes if the record is larger",
                topic=state.tp.topic, partition=state.tp.partition, offset=offset,
            )  # fmt: skip
            return
        aborted: list[tuple[int, int]] = []
        if self._settings.isolation_level:
            aborted = [(r.producer_id, r.first_offset) for r in row.aborted_transactions or ()]
        check = self._settings.check_crcs
        state.buffer.append(Fetched(state.tp, buffer[:end], offset, aborted=aborted, check_crcs=check))
        state.fetch_offset = max(state.fetch_offset, next_offset)

    def _apply_error(self, node: int, state: PartitionState, row: PartitionData, now_ms: float) -> None:
        code = row.error_code
        state.not_before_ms = now_ms + self._settings.backoff.initial_ms
        if code in _LEADER_MOVED:
            state.preferred = PreferredReplica()
            hint = row.current_leader
            if self._view.set_leader(*state.tp, hint.leader_id, hint.leader_epoch):
                state.not_before_ms = 0.0  # KIP-951: the response names the new leader
            else:
                self._view.invalidate()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred.node == node and node != self._view.leader(*state.tp):
                state.preferred = PreferredReplica()  # a follower may lag behind the position: fetch from the leader
            elif not state.buffer.parts:  # else the buffered records are returned first
                self._reset_out_of_range(state)
        elif code == ErrorCode.UNKNOWN_SERVER_ERROR:  # retried, as Kafka's consumer does
            logger.warning(
                "Unknown server error while fetching %s at offset %d; retrying", state.tp, state.fetch_offset
            )
        elif not error_for(code).retriable:
            state.lookup.error = error_for(code, f"{state.tp}: {error_for(code)}")

    def _reset_out_of_range(self, state: PartitionState) -> None:
        if self._settings.reset_timestamp is None:
            state.lookup.error = OffsetOutOfRange(
                f"{state.tp}: offset {state.fetch_offset} is out of range and auto.offset.reset=none: call seek",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        else:
            logger.warning(
                "Fetch position %d is out of range for partition %s, resetting offset", state.fetch_offset, state.tp
            )
            state.reset(self._settings.reset_timestamp)
