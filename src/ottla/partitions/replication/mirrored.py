"""The leader of a partition that is copied from a partition of another cluster. KIP-1279.

A `ReplicaFetcher` fetches for it as a consumer from the leader in the source, up to the high watermark there. The
batches are appended as they are; the followers in this cluster and the high watermark follow as for produced records.

    mirrored = MirroredPartition(partition, source_leader, source_epoch, ports)
    fetchers.following(mirrored)      # and again after `mirrored.follow(...)` returned True
    fetchers.unfollowed(mirrored)     # after `mirrored.close()`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.metadata.mirrors import generation_start
from ottla.partitions.flush import FlushInThread
from ottla.partitions.replication.followed import EARLIEST
from ottla.replication.follower import Action, Step, on_source_start

if TYPE_CHECKING:
    from ottla.log import Log
    from ottla.partitions.partition import Partition
    from ottla.records import Buffer

UNKNOWN: Final = -1


class MirrorPorts(NamedTuple):
    """The parts of the node that a mirrored partition uses."""

    flush_in_thread: FlushInThread
    on_error: Callable[[], None]
    """Called after an answer with an error: the source's metadata may have changed."""


class MirrorProgress:
    """How far the copy is, and which records it has dropped since this node leads the partition."""

    __slots__ = ("as_of_ms", "problem", "skipped", "source_end", "truncated")

    def __init__(self) -> None:
        self.source_end = UNKNOWN
        """The high watermark of the source at its last answer."""
        self.as_of_ms = UNKNOWN
        """When the request for that answer was sent, by the monotonic clock.

        The answer may have been on the way for long, while the source got more records.
        """
        self.truncated = 0
        """Records that the source has lost, and that were dropped here."""
        self.skipped = 0
        """Offsets that the source had deleted before they were copied."""
        self.problem = ""
        """Why the last answer brought no progress: an error of the source, or of this node."""


class MirroredPartition:
    """A led partition with the position of its copy; a `FollowingPartition` for its fetcher."""

    __slots__ = (
        "_ports",
        "closed",
        "leader_epoch",
        "leader_id",
        "needs_end",
        "partition",
        "progress",
        "topic_id",
    )

    first_lookup = EARLIEST

    def __init__(self, partition: Partition, leader_id: int, leader_epoch: int, ports: MirrorPorts) -> None:
        """`leader_id` and `leader_epoch` are the source's."""
        self.partition = partition
        self.topic_id = partition.topic_id
        self.closed = False
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.needs_end = True
        """Whether the source's leader must say where its log ends.

        A new leader may answer fetches with an old high watermark, below records that its predecessor has committed. It
        refuses to name its end meanwhile (KIP-207).
        """
        self.progress = MirrorProgress()
        self._ports = ports

    def __repr__(self) -> str:
        return f"<MirroredPartition {self.log.topic_partition} of node {self.leader_id} of the source>"

    @property
    def log(self) -> Log:
        """The log of the partition, which a move to another log directory replaces."""
        return self.partition.log

    @property
    def is_truncation_synced(self) -> bool:
        """Whether truncations are on disk; nothing may be appended before."""
        return self.partition.is_truncation_synced

    def follow(self, leader_id: int, leader_epoch: int) -> bool:
        """Take in the source's leader; whether it changed. Metadata of an earlier epoch is ignored."""
        if leader_epoch < self.leader_epoch or (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return False
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        # The new leader has not answered yet.
        self.needs_end = True
        self.progress.as_of_ms = UNKNOWN
        return True

    def continues(self, former: MirroredPartition) -> None:
        """Take over the report of the previous copy by this leader; the source has to answer again."""
        self.progress = former.progress
        self.progress.as_of_ms, self.progress.problem = UNKNOWN, ""

    @property
    def lag(self) -> int:
        """The records that the source had at its last answer and that are not here; -1 if it has not answered yet."""
        end = self.progress.source_end
        return UNKNOWN if end == UNKNOWN else max(end - self.log.log_end_offset, 0)

    # -- fetching ------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, now_ms: int) -> None:
        """Append fetched batches; raises KafkaError as `append_as_follower`."""
        self.partition.append_copied(records, self.leader_epoch, now_ms)

    def take_offsets(self, high_watermark: int, log_start_offset: int, appended_bytes: int, asked_ms: int) -> None:  # noqa: ARG002 - the signature of FollowingPartition
        """Note the end of the source in answer to a request of `asked_ms`, and follow its log start.

        The log start follows as far as records are committed here.

        Raises KafkaError if this node no longer leads the partition: its log follows another leader then.
        """
        partition, progress = self.partition, self.progress
        partition.check_open()
        log = partition.log
        if self.needs_end and log.latest_epoch == self.leader_epoch:
            self.needs_end = False  # A committed record of this leader is behind all earlier ones.
        if not self.needs_end:
            progress.source_end, progress.as_of_ms = high_watermark, asked_ms
            progress.problem = ""
        start = min(log_start_offset, partition.high_watermark)
        if start > log.log_start_offset:
            log.advance_start(start, "the source's log start")

    def take_end(self, offset: int, asked_ms: int) -> None:
        """Note the end of the source, as its leader has named it in answer to a ListOffsets of `asked_ms`."""
        self.needs_end = False
        self.progress.source_end, self.progress.as_of_ms = offset, asked_ms
        self.progress.problem = ""

    def truncate(self, offset: int) -> bool:
        """Drop records that the source has lost; whether there were any."""
        end = self.log.log_end_offset
        if offset >= end:
            return False
        self.partition.cut(offset)
        self.progress.truncated += end - self.log.log_end_offset
        return True

    def restart(self, offset: int) -> None:
        """Continue at the source's log start, after records that were deleted there before they were copied."""
        end = self.log.log_end_offset
        self.partition.cut(offset, restart=True)
        self.progress.skipped += offset - end

    def on_lookup(self, timestamp: int, offset: int) -> Step:  # noqa: ARG002 - the signature of FollowingPartition
        """Decide the next step when the source's log start is known, after a fetch outside of its log.

        The source cannot compare an epoch above its own. Records of a later generation were written here, after a
        promotion that the source does not know, e.g. for a test: a failback drops them.
        """
        log = self.log
        own = generation_start(log.latest_epoch)
        if own > self.leader_epoch and offset <= log.log_end_offset:
            return Step(Action.TRUNCATE, log.offset_for_leader_epoch(own - 1)[1])
        return on_source_start(offset, log)

    def note_error(self, error: ErrorCode) -> None:
        """Report an error of the source, which may have another leader."""
        right = "; give the mirror's user READ on the topic" if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED else ""
        self.progress.problem = f"The source answers {error.name}{right}"
        self._ports.on_error()

    def note_failure(self, problem: str) -> None:
        """Report that an answer could not be taken in, e.g. because of an error of the disk."""
        self.progress.problem = problem

    def close(self) -> None:
        """Stop copying."""
        self.closed = True

    # -- durability ----------------------------------------------------------------------------------------------

    def flush_if_due(self, now_ms: int) -> None:
        """The partition flushes as for produced records: a fetch of a consumer acknowledges nothing."""

    def truncated(self) -> Completion[None]:
        """Sync a truncation, as `FollowedPartition.truncated`."""
        synced: Completion[None] = Completion()

        def finished(done: Completion[None]) -> None:
            self.partition.is_truncation_synced = done.error is None
            synced.follow(done)

        self._ports.flush_in_thread(self.log.flush).on_done(finished)
        return synced
