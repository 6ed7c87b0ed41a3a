"""Why a record cannot be taken in or was not delivered: at once, or when the time for waiting is over."""

from __future__ import annotations

from ottla.clients.errors import (
    BrokerUnavailable,
    BufferExhausted,
    ClientError,
    DeliveryTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.metadata_refresh import MetadataWish
from ottla.common.errors import ErrorCode


def refusal(
    topic: str, partition: int | None, since: int, partitions: int, error_code: int, wish: MetadataWish
) -> ClientError | None:
    """What to raise at once, for waiting will not help; None while it may.

    `partitions` is 0 while the topic is unknown, `error_code` why it is; `since` is the version of the metadata when
    the caller began to try.
    """
    if error_code and not (error := error_for(error_code, f"{topic}: {ErrorCode(error_code).text}")).retriable:
        return error
    if wish.problem is not None and not wish.problem.retriable and not partitions:
        return wish.problem
    if partition is not None and partitions and not 0 <= partition < partitions and wish.version > since:
        return UnknownTopicOrPartition(f"{topic} has no partition {partition}, only 0 to {partitions - 1}")
    return None


def obstacle(
    topic: str, partition: int | None, partitions: int, wish: MetadataWish, used: int, room: int
) -> ClientError:
    """What to raise when the time for waiting is over; `used` of `room` bytes are taken."""
    if wish.problem is not None and not partitions:
        return BrokerUnavailable(
            f"{wish.problem} (send() waited for max.block.ms; delivery.timeout.ms begins when a record has its place)",
            retriable=wish.problem.retriable,
        )
    if not partitions or (partition or 0) >= partitions:
        name = topic if partition is None else f"{topic}-{partition}"
        return UnknownTopicOrPartition(
            f"{name} is not known to the cluster after max.block.ms; does it exist, may we see it, and is the "
            "address of the cluster right?"
        )
    return BufferExhausted(
        f"No room for the record within max.block.ms: {used} of {room} bytes of buffer.memory wait for brokers; "
        "send less, or raise buffer.memory"
    )


def expired_after(seconds: float, batch: Batch) -> DeliveryTimedOut:
    """What the records of a batch fail with that has no end after that time; its cause is the last attempt's error."""
    sent = f"sent {batch.attempts} times without an answer" if batch.attempts else "never sent"
    if batch.error is not None:
        sent = f"sent {batch.attempts} times, the last error: {batch.error}"
    late = DeliveryTimedOut(f"{batch.count} records for {batch.queue} are not acknowledged after {seconds} s ({sent})")
    late.__cause__ = batch.error
    return late
