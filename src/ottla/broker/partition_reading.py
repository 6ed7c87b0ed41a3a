"""Reading a replica's log, for leaders and followers: isolation levels, and the ends of leader epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.log import Log

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
