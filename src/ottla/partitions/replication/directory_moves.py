"""Moves the replicas of this node between its log directories. KIP-113, KIP-858.

    moves = DirectoryMoves(ports)
    moves.start()                               # continues moves that a restart interrupted
    moves.alter(topic_partition, path)          # Kafka's error codes

One replica is copied at a time, a chunk in each event loop iteration, at most at
`replica.alter.log.dirs.io.max.bytes.per.second`. A copy that has everything is synced in a thread, and in a cluster the
controller learns its directory: it elects other leaders when a directory fails. Then, within one event loop iteration,
the last records are copied and the copy takes the place of the log. Producers and consumers notice nothing.

`ottla.log.moves` describes the steps on disk, and the state after a crash.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.rate_limit import RateLimitedLog
from ottla.common.values import value
from ottla.log.moves import LogMoves
from ottla.metadata.features import DIRECTORIES_FROM

if TYPE_CHECKING:
    from ottla.common.completion import Completion
    from ottla.common.ids import TopicPartition, Uuid
    from ottla.common.timers import CallLater
    from ottla.log import Log, LogDirectory, LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.partitions.partition import Partition
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.followed import FollowedPartition
    from ottla.partitions.replication.quotas import ReplicationQuota

logger = logging.getLogger(__name__)
# A request may name thousands of replicas.
_refusals = RateLimitedLog(logger, lines=10, period_s=10.0)

# Copied in one event loop iteration: half a millisecond.
CHUNK_BYTES: Final = 256 * 1024
# Records that arrive while a copy is sealed. If there are more, it is sealed again: the last ones are synced at once.
MOST_UNSEALED_BYTES: Final = 4 << 20
MOST_SEALS: Final = 5
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0


@value
class MovePorts:
    """The parts of the broker that a move uses."""

    node_id: int
    logs: LogManager
    partitions: Partitions
    call_later: CallLater
    in_thread: Callable[[Callable[[], object]], Completion[None]]
    image: Callable[[], MetadataImage]
    quota: ReplicationQuota


class _State(Enum):
    COPYING = 0
    SYNCING = 1
    """A thread syncs the copy."""
    ASSIGNING = 2
    """The copy has everything; the metadata does not show its directory yet."""
    PAUSED = 3
    """After an error."""


class _Move:
    __slots__ = ("failures", "future", "is_reported", "replica", "seals", "state", "unsealed")

    def __init__(self, replica: Partition | FollowedPartition, future: Log) -> None:
        self.replica = replica
        self.future = future
        self.state = _State.COPYING
        self.failures = 0
        self.seals = 0
        # Whether the metadata shall show the directory of the copy.
        self.is_reported = False
        # The bytes that were copied since the copy was sealed; -1 before.
        self.unsealed = -1


class DirectoryMoves:
    """A `RoleListener`. Not thread safe: use it on the event loop."""

    def __init__(self, ports: MovePorts) -> None:
        self._ports = ports
        self._logs = LogMoves(ports.logs)
        # By absolute paths, as DescribeLogDirs shows them.
        self._by_path = {os.path.abspath(each.path): each for each in ports.logs.log_directories()}  # noqa: PTH100 - no pathlib at start
        self._moves: dict[TopicPartition, _Move] = {}
        # What a thread does with a copy now. It goes on when the replica gets another role, and so another move.
        self._work: dict[Log, Completion[None]] = {}
        self._current: TopicPartition | None = None
        self._is_scheduled = False
        # Replaced logs whose folders are not renamed yet, and the moves that begin after that.
        self._retiring: dict[TopicPartition, LogDirectory | None] = {}
        self.report: Callable[[TopicPartition], None] | None = None
        """Called when `directory_of` a replica may have changed. Without it, this node is a cluster of its own."""

    def start(self) -> None:
        """Continue moves that were interrupted by a restart."""
        self._ports.partitions.listen(self)

    # -- roles ---------------------------------------------------------------------------------------------------

    def leading(self, partition: Partition) -> None:
        """Continue a move of this partition."""
        self._attach(partition)

    def following(self, partition: FollowedPartition) -> None:
        """Continue a move of this partition."""
        self._attach(partition)

    def resigned(self, partition: Partition) -> None:
        """Pause a move until the partition has another role."""
        self._moves.pop(partition.log.topic_partition, None)

    def unfollowed(self, partition: FollowedPartition) -> None:
        """Pause a move until the partition has another role."""
        self._moves.pop(partition.log.topic_partition, None)

    def _attach(self, replica: Partition | FollowedPartition) -> None:
        topic_partition = replica.log.topic_partition
        self._report(topic_partition)
        future = self._ports.logs.futures.get(topic_partition)
        known = self._moves.get(topic_partition)
        if future is not None and (known is None or known.replica is not replica):
            move = self._moves[topic_partition] = _Move(replica, future)
            work = self._work.get(future)
            if work is None:
                self._schedule()
            else:
                # Two threads would write, and rename, the same files.
                move.state = _State.SYNCING
                work.on_done(lambda _: self._continue(move, _State.SYNCING))

    def metadata_published(self, image: MetadataImage) -> None:
        """Continue moves whose directories the metadata shows now."""
        for move in self._moves.values():
            if move.state is _State.ASSIGNING and self._is_assigned(move, image):
                move.state = _State.COPYING
                self._schedule()

    def directory_failed(self, path: str) -> None:
        """Stop moves into a directory that failed; the logs stay where they are."""
        for topic_partition, future in list(self._ports.logs.futures.items()):
            if future.log_directory.path == path:
                self._drop(topic_partition)

    # -- requests ------------------------------------------------------------------------------------------------

    def alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Begin, redirect or cancel the move of a replica, or remember the directory for a replica to come."""
        try:
            self._alter(topic_partition, path)
        except KafkaError as error:
            _refusals.warning("Unable to alter log dirs for %s: %s", topic_partition, error)
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error.code
        return ErrorCode.NONE

    def _alter(self, topic_partition: TopicPartition, path: str) -> None:
        directory = self._directory(path)
        logs = self._ports.logs
        try:
            replica = self._ports.partitions.readable(*topic_partition)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                logs.preferred[topic_partition] = directory
            raise
        if topic_partition in self._retiring:
            self._retiring[topic_partition] = directory
            return
        future = logs.futures.get(topic_partition)
        if future is not None and future.log_directory is not directory:
            self._drop(topic_partition)
            self._report(topic_partition)
            future = None
        if replica.log.log_directory is not directory and future is None:
            self._logs.begin(replica.log, directory)
            self._attach(replica)

    def _directory(self, path: str) -> LogDirectory:
        directory = self._by_path.get(path)
        if directory is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if not directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if directory.is_cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        return directory

    def _drop(self, topic_partition: TopicPartition) -> None:
        self._moves.pop(topic_partition, None)
        self._logs.discard(self._ports.logs.futures[topic_partition])

    # -- copying -------------------------------------------------------------------------------------------------

    def _schedule(self, delay_s: float = 0) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._ports.call_later(delay_s, self._step)

    def _step(self) -> None:
        """Copy a chunk of one replica."""
        self._is_scheduled = False
        wait_ms = self._ports.quota.wait_ms()
        if wait_ms:
            if self._moves:
                self._schedule(wait_ms / 1000)
            return
        move = self._choose()
        if move is None:
            return
        try:
            self._copy(move)
        except KafkaError as error:
            self._failed(move, error)
        self._schedule()

    def _choose(self) -> _Move | None:
        """The same replica until it is copied, then the first one by name, as in Kafka."""
        current = self._moves.get(self._current) if self._current is not None else None
        if current is not None and current.state is _State.COPYING:
            return current
        copying = [each for each, move in self._moves.items() if move.state is _State.COPYING]
        self._current = min(copying, default=None)
        return self._moves[self._current] if self._current is not None else None

    def _copy(self, move: _Move) -> None:
        log, future = move.replica.log, move.future
        if self._logs.align(log, future):
            self._in_thread(move, future.flush)
            return
        size = self._logs.copy_some(log, future, CHUNK_BYTES)
        if size:
            self._ports.quota.record(size)
            if move.unsealed >= 0:
                move.unsealed += size
        move.failures = 0
        if future.log_end_offset >= log.log_end_offset:
            self._caught_up(move)
        elif future.durability.has_unsynced_segments:
            self._in_thread(move, future.flush)

    def _caught_up(self, move: _Move) -> None:
        if not self._is_assigned(move, self._ports.image()):
            move.state, move.is_reported = _State.ASSIGNING, True
            self._report(move.future.topic_partition)
        elif move.unsealed < 0 or (move.unsealed > MOST_UNSEALED_BYTES and move.seals < MOST_SEALS):
            move.unsealed = 0
            move.seals += 1
            self._in_thread(move, lambda: self._logs.seal(move.replica.log, move.future))
        elif move.replica.is_truncation_synced:
            self._replace(move)
        else:
            self._pause(move, RETRY_S)

    def _in_thread(self, move: _Move, work: Callable[[], object]) -> None:
        move.state = _State.SYNCING
        running = self._work[move.future] = self._ports.in_thread(work)
        running.on_done(lambda done: self._synced(move, done))

    def _synced(self, move: _Move, done: Completion[None]) -> None:
        self._work.pop(move.future, None)
        if self._moves.get(move.future.topic_partition) is not move:
            return
        move.state = _State.COPYING
        try:
            done.result()
        except (KafkaError, OSError) as error:
            move.unsealed = -1
            self._failed(move, error)
        self._schedule()

    def _failed(self, move: _Move, error: KafkaError | OSError) -> None:
        topic_partition, future = move.future.topic_partition, move.future
        if not future.log_directory.online:
            logger.warning("Stopping the move of %s to %s: %s", topic_partition, future.log_directory.path, error)
            if self._ports.logs.futures.get(topic_partition) is future:
                self._drop(topic_partition)
            return
        logger.warning("The move of %s is retried: %s", topic_partition, error)
        self._pause(move, min(RETRY_S * 2**move.failures, LONGEST_RETRY_S))
        move.failures += 1

    def _pause(self, move: _Move, delay_s: float) -> None:
        move.state = _State.PAUSED
        self._ports.call_later(delay_s, lambda: self._continue(move, _State.PAUSED))

    def _continue(self, move: _Move, after: _State) -> None:
        """Copy on, if the move is in the state `after` still."""
        if self._moves.get(move.future.topic_partition) is move and move.state is after:
            move.state = _State.COPYING
            self._schedule()

    # -- the controller ------------------------------------------------------------------------------------------

    def _report(self, topic_partition: TopicPartition) -> None:
        if self.report is not None:
            self.report(topic_partition)

    def directory_of(self, topic_partition: TopicPartition) -> Uuid | None:
        """The directory that the metadata shall show for a replica; None if it has no log.

        The directory may have failed: a controller that does not know which replicas it has elects no other leaders.
        """
        move = self._moves.get(topic_partition)
        if move is not None and move.is_reported:
            return move.future.log_directory.directory_id
        log = self._ports.logs.get(topic_partition)
        return None if log is None else log.log_directory.directory_id

    def _is_assigned(self, move: _Move, image: MetadataImage) -> bool:
        if self.report is None or image.metadata_version < DIRECTORIES_FROM:
            return True
        topic, index = move.future.topic_partition
        known = image.topics_by_name.get(topic)
        partition = known.partitions.get(index) if known is not None else None
        if partition is None:
            return False
        return partition.directory_of(self._ports.node_id) == move.future.log_directory.directory_id

    # -- the end of a move ---------------------------------------------------------------------------------------

    def _replace(self, move: _Move) -> None:
        """Let the copy take the place of the log, and delete the log once the copy's name is on disk."""
        original, log = move.replica.log, move.future
        topic_partition = log.topic_partition
        self._logs.replace(original, log)
        move.replica.log = log
        del self._moves[topic_partition]
        self._retiring[topic_partition] = None

        def renamed(done: Completion[None]) -> None:
            if done.error is not None:
                # The directory is offline. The original stays for the next start, which may not find the copy.
                self._logs.keep_original(original)
                self._retiring.pop(topic_partition)
                return
            self._logs.retire(original)
            self._ports.in_thread(lambda: self._logs.finish(original, log)).on_done(finished)

        def finished(done: Completion[None]) -> None:
            done.result()
            following = self._retiring.pop(topic_partition)
            if following is not None and self.alter(topic_partition, os.path.abspath(following.path)):  # noqa: PTH100
                logger.warning("The next move of %s did not begin", topic_partition)

        self._ports.in_thread(lambda: self._logs.sync_new_name(log)).on_done(renamed)
