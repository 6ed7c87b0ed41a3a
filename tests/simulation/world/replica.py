"""One replica of a partition: its real log, and the cores that lead or follow.

The caller passes messages, proposals and answers between replicas and controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.follower import append_as_follower
from ottla.log.log import Log
from ottla.metadata.image import PartitionImage
from ottla.records import read_header
from ottla.replication.follower import (
    Action,
    EpochEnd,
    FetchAnswer,
    Position,
    on_fetched,
    on_leader_end,
    on_leader_start,
    position_of,
)
from ottla.replication.leader import ClusterView, IsrProposal, Leader
from ottla.replication.replica import ReplicaFetch

MAX_FETCH_BYTES = 400

Key: TypeAlias = "tuple[bytes, int]"
"""Topic id and partition."""
Acknowledge: TypeAlias = "Callable[[int | KafkaError], None]"
"""Gets the offset of the first record of a committed batch, or why it may not be committed."""


class Fetched(NamedTuple):
    """The leader's answer to a fetch: with records, and perhaps a change of the ISR that follows from it."""

    answer: FetchAnswer
    records: bytes = b""
    proposal: IsrProposal | None = None


class Replica:
    """A replica on a running node."""

    def __init__(self, key: Key, log: Log, view: ClusterView, min_isr: int) -> None:
        self.key, self.log, self.view, self.min_isr = key, log, view, min_isr
        self.leader: Leader | None = None
        self.leader_id = self.epoch = -1
        self.replica_count = 0
        self.waiting: list[tuple[int, int, Acknowledge]] = []
        """(end offset, first offset, callback) of batches that are not committed yet."""

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def follow_metadata(self, partition: PartitionImage, now_ms: int) -> bool:
        """Take over newer metadata; whether the leader epoch is another one."""
        is_new = partition.leader_epoch != self.epoch or partition.leader != self.leader_id
        self.leader_id, self.epoch = partition.leader, partition.leader_epoch
        self.replica_count = len(partition.replicas)
        end = self.log.log_end_offset
        if partition.leader != self.view.node_id:
            self.leader = None
            self._fail_waiting()
        elif self.leader is None:
            self.leader = Leader(
                self.view, partition, min_insync_replicas=self.min_isr, log_end_offset=end, now_ms=now_ms
            )
        else:
            self.leader.follow(partition, end, now_ms)
        self.advance(now_ms)
        return is_new

    def close(self) -> None:
        """The replica moves away."""
        self.leader = None
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, _, acknowledge in waiting:
            acknowledge(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- the leader --------------------------------------------------------------------------------------------------

    def append(self, batch: bytearray, now_ms: int, acknowledge: Acknowledge) -> None:
        """Append a producer's batch, and acknowledge it when it is committed (acks=all)."""
        leader = self.leader
        if leader is None:
            acknowledge(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if len(leader.isr) < leader.effective_min_isr:
            acknowledge(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
            return
        try:
            info = self.log.append_as_leader(batch, read_header(batch), leader.leader_epoch, now_ms)
        except KafkaError as error:
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            acknowledge(error)
            return
        self.waiting.append((info.last_offset + 1, info.first_offset, acknowledge))
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """Move the leader's high watermark, and acknowledge what is committed."""
        if self.leader is None:
            return
        log = self.log
        log.high_watermark = self.leader.high_watermark(log.high_watermark, log.log_end_offset, now_ms)
        ready = [each for each in self.waiting if each[0] <= log.high_watermark]
        self.waiting = [each for each in self.waiting if each[0] > log.high_watermark]
        for _, offset, acknowledge in ready:
            acknowledge(offset)

    def serve_fetch(self, fetch: ReplicaFetch, position: Position, now_ms: int, *, update: bool = True) -> Fetched:
        """Answer a follower; `update` unless this answer was already looked for when the fetch arrived."""
        leader, log = self.leader, self.log
        if leader is None:
            return Fetched(FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if position.leader_epoch != leader.leader_epoch:
            is_old = position.leader_epoch < leader.leader_epoch
            return Fetched(FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH))
        end, start = log.log_end_offset, log.log_start_offset
        try:
            leader.check_replica(fetch)
            if position.last_fetched_epoch >= 0:
                epoch, epoch_end = self.end_of_epoch(position.last_fetched_epoch)
                if epoch < position.last_fetched_epoch or epoch_end < position.fetch_offset:
                    diverging = EpochEnd(epoch, epoch_end)
                    return Fetched(FetchAnswer(ErrorCode.NONE, log.high_watermark, start, diverging))
            records = bytes(log.read(position.fetch_offset, MAX_FETCH_BYTES, end))
            if not update:
                return Fetched(FetchAnswer(ErrorCode.NONE, log.high_watermark, start), records)
            proposal = leader.on_fetch(fetch, log_end_offset=end, high_watermark=log.high_watermark, now_ms=now_ms)
        except KafkaError as error:
            return Fetched(FetchAnswer(ErrorCode(error.code)))
        self.advance(now_ms)
        return Fetched(FetchAnswer(ErrorCode.NONE, log.high_watermark, start), records, proposal)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and its end; (-1, -1) for an unknown later epoch."""
        if epoch > self.epoch:
            return -1, -1
        latest = self.log.epochs.latest
        if epoch == self.epoch or epoch > latest:
            return max(epoch if epoch == self.epoch else latest, -1), self.log.log_end_offset
        return self.log.offset_for_leader_epoch(epoch)

    # -- the follower ------------------------------------------------------------------------------------------------

    def position(self) -> Position:
        """Return the position that the next fetch names."""
        return position_of(self.log, self.epoch)

    def take(self, requested: Position, fetched: Fetched, now_ms: int) -> Action:
        """Take in the answer to a fetch; returns what it led to."""
        log, answer = self.log, fetched.answer
        step = on_fetched(requested, answer, log, self.epoch)
        if step.action is Action.APPEND:
            append_as_follower(log, memoryview(bytearray(fetched.records)), self.epoch, now_ms)
            log.advance_start(min(answer.log_start_offset, log.log_end_offset), "the leader's log start")
            log.high_watermark = max(log.high_watermark, min(answer.high_watermark, log.log_end_offset))
        elif step.action is Action.TRUNCATE:
            log.truncate_to(step.offset)
        return step.action

    def take_bounds(self, leader_start: int, leader_end: int) -> None:
        """Take in where the leader's log starts and ends, after an offset outside of it."""
        step = on_leader_end(leader_end, self.log)
        if step.action is Action.LOOK_UP:
            step = on_leader_start(leader_start, self.log)
        if step.action is Action.TRUNCATE:
            self.log.truncate_to(step.offset)
        elif step.action is Action.RESTART:
            self.log.truncate_fully(step.offset)
            self.log.flush()


def min_isr_of(configs: Mapping[str, str]) -> int:
    """The topic's min.insync.replicas."""
    return int(configs.get("min.insync.replicas", "1"))
