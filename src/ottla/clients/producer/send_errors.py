"""The errors of records that cannot be appended, immediately or after max.block.ms, and of expired batches."""

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
from ottla.clients.producer.metadata_refresh import MetadataRefresh
from ottla.common.errors import ErrorCode


def immediate_error(
    topic: str, partition: int | None, since: int, partitions: int, error_code: int, refresh: MetadataRefresh
) -> ClientError | None:
    """The error to raise immediately because waiting does not help; None while it may.

    `partitions` is 0 while the topic is unknown, and `error_code` is the reason. `since` is the version of the metadata
    at the first attempt of the caller.
    """
    if error_code and not (error := error_for(error_code, f"{topic}: {ErrorCode(error_code).text}")).retriable:
        return error
    if refresh.problem is not None and not refresh.problem.retriable and not partitions:
        return refresh.problem
    if partition is not None and partitions and not 0 <= partition < partitions and refresh.version > since:
        return UnknownTopicOrPartition(f"{topic} has no partition {partition}, only 0 to {partitions - 1}")
    return None


def timeout_error(
    topic: str, partition: int | None, partitions: int, refresh: MetadataRefresh, used: int, limit: int
) -> ClientError:
    """The error to raise after max.block.ms; `used` of `limit` bytes of the memory are in use."""
    if refresh.problem is not None and not partitions:
        return BrokerUnavailable(
            f"{refresh.problem} (send() waited for max.block.ms; delivery.timeout.ms starts when a record is appended)",
            retriable=refresh.problem.retriable,
        )
    if not partitions or (partition or 0) >= partitions:
        name = topic if partition is None else f"{topic}-{partition}"
        return UnknownTopicOrPartition(
            f"{name} is not known to the cluster after max.block.ms; does it exist, may we see it, and is the "
            "address of the cluster right?"
        )
    return BufferExhausted(
        f"The record does not fit into buffer.memory after max.block.ms: {used} of {limit} bytes wait for brokers; "
        "send less, or raise buffer.memory"
    )


def expired_after(seconds: float, batch: Batch) -> DeliveryTimedOut:
    """The error of a batch without an outcome after delivery.timeout.ms. Its cause is the error of the last attempt."""
    sent = f"sent {batch.attempts} times without an answer" if batch.attempts else "never sent"
    if batch.error is not None:
        sent = f"sent {batch.attempts} times, the last error: {batch.error}"
    late = DeliveryTimedOut(f"{batch.count} records for {batch.queue} are not acknowledged after {seconds} s ({sent})")
    late.__cause__ = batch.error
    return late
