"""Writes the end of a transaction into the partitions of this node, for the transaction coordinator and other brokers.

A marker in a partition of `__consumer_offsets` goes through the group coordinator, which applies it to the offsets
that were committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import DONE, Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC
from ottla.common.slices import Slices

if TYPE_CHECKING:
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.log.transaction_marker import TransactionEnd
    from ottla.partitions.partitions import Partitions

# Brokers that send markers do not expect errors of a group coordinator: this one makes them retry.
_NOT_READY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class MarkerPorts(Protocol):
    """The partitions of this node, and the group coordinator, which is created at its first use."""

    @property
    def partitions(self) -> Partitions: ...

    @property
    def groups(self) -> GroupRuntime: ...


def write_markers(
    node: MarkerPorts, end: TransactionEnd, partitions: Iterable[tuple[str, int]]
) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """Write the marker into each partition; returns the outcomes once all markers are committed."""
    outcomes: dict[tuple[str, int], ErrorCode] = {}
    waiting: list[tuple[tuple[str, int], Completion[None]]] = []
    for partition in partitions:
        if partition not in outcomes:
            done = _write(node, end, *partition)
            outcomes[partition] = _outcome(done) if done.done else ErrorCode.NONE
            if not done.done:
                waiting.append((partition, done))
        yield
    for partition, done in waiting:
        if not done.done:
            yield done
        outcomes[partition] = _outcome(done)
    return outcomes


def _write(node: MarkerPorts, end: TransactionEnd, topic: str, index: int) -> Completion[None]:
    try:
        # Also for the offsets topic: the group coordinator reports every unknown partition as not available.
        partition = node.partitions.get(topic, index)
        if topic == OFFSETS_TOPIC:
            return node.groups.shards.end_transaction(index, end)
        if partition.refusal is not None and partition.refusal.is_copy:
            return DONE  # A mirrored topic: records of this cluster's transactions were refused.
        info = partition.append_marker(end)
    except KafkaError as error:
        return Completion.failed(error)
    return partition.when_durable(info.last_offset + 1) or DONE


def _outcome(done: Completion[None]) -> ErrorCode:
    try:
        done.result()
    except KafkaError as error:
        return _NOT_READY.get(error.code, error.code)
    return ErrorCode.NONE
