"""Writes the end of a transaction into the partitions of this node, for the transaction coordinator and other brokers.

A marker in a partition of `__consumer_offsets` goes through the group coordinator, which applies it to the offsets
that were committed in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.common.completion import DONE, Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC
from ottla.common.slices import Slices

if TYPE_CHECKING:
    from ottla.broker.ports import MarkerPorts
    from ottla.log.transaction_marker import TransactionEnd

# Brokers that send markers do not expect errors of a group coordinator: this one makes them retry.
_NOT_READY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def write_markers(
    broker: MarkerPorts, end: TransactionEnd, partitions: Iterable[tuple[str, int]]
) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """Write the marker into each partition; returns the outcomes once all markers are committed."""
    outcomes: dict[tuple[str, int], ErrorCode] = {}
    waiting: list[tuple[tuple[str, int], Completion[None]]] = []
    for partition in partitions:
        if partition not in outcomes:
            done = _write(broker, end, *partition)
            outcomes[partition] = _outcome(done) if done.done else ErrorCode.NONE
            if not done.done:
                waiting.append((partition, done))
        yield
    for partition, done in waiting:
        if not done.done:
            yield done
        outcomes[partition] = _outcome(done)
    return outcomes


def _write(broker: MarkerPorts, end: TransactionEnd, topic: str, index: int) -> Completion[None]:
    try:
        # Also for the offsets topic: the group coordinator reports every unknown partition as not available.
        partition = broker.partitions.get(topic, index)
        if topic == OFFSETS_TOPIC:
            return broker.groups.shards.end_transaction(index, end)
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
