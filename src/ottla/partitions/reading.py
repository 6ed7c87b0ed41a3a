"""Reading a replica's log, for leaders and followers: isolation levels, leader epochs, and the ends of epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.common.unread import Unread
    from ottla.log import Log
    from ottla.records import Buffer

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
READ_ALL = 2
"""A follower reads up to the end of the log. Clients cannot request this level."""


def end_of_epoch(log: Log, leader_epoch: int, epoch: int) -> tuple[int, int]:
    """The largest epoch up to `epoch` and its end offset; (-1, -1) for an unknown later epoch. KIP-101, KIP-320.

    The log contains only epochs in which a record was written. Later epochs without records, the current one among
    them, begin and end at the log end offset.
    """
    if epoch > leader_epoch:
        return -1, -1
    if epoch == leader_epoch:
        return epoch, log.log_end_offset
    latest = log.epochs.latest
    if epoch > latest:
        return (latest if latest >= 0 else epoch), log.log_end_offset
    return log.offset_for_leader_epoch(epoch)


def out_of_range(log: Log, offset: int, end: int) -> KafkaError:
    """The error for a fetch outside of the log."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Offset {offset} of {log.topic_partition} is outside {log.log_start_offset} to {end}",
    )


def check_leader_epoch(leader_epoch: int, current_leader_epoch: int) -> None:
    """Fence a client with an older or unknown leader epoch (KIP-320). -1 is not checked."""
    if current_leader_epoch in (-1, leader_epoch):
        return
    older = current_leader_epoch < leader_epoch
    raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)


def look_up(log: Log, offset: int, max_bytes: int, end: int, *, min_one_batch: bool) -> Buffer | Unread:
    """Return whole batches below `end`, the first of them with `offset`; large ranges are read when they are sent.

    Returns no bytes for an offset that is in the log but not visible yet. Raises OFFSET_OUT_OF_RANGE.
    """
    if log.log_start_offset <= offset < end:
        return log.look_up(offset, max_bytes, end, min_one_batch=min_one_batch)
    if end <= offset <= log.log_end_offset:
        return b""
    raise out_of_range(log, offset, end)
