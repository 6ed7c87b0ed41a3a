"""What a consumer counts, by the names of the metrics of Kafka's consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.positions import Phase
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.core import ConsumerCore


def metrics(core: ConsumerCore) -> dict[str, float]:
    """Counts of records and partitions."""
    lags = [lag for state in core.positions if (lag := state.lag(core.isolation)) is not None]
    return {
        "records-consumed-total": core.records_consumed,
        "bytes-consumed-total": core.bytes_consumed,
        "records-lag-max": max(lags, default=0),
        "assigned-partitions": len(core.positions),
        "buffered-bytes": core.buffered_bytes,
    }


def partition_metrics(core: ConsumerCore) -> dict[TopicPartition, dict[str, float]]:
    """Position, committed position and lag of each partition, where they are known."""
    found: dict[TopicPartition, dict[str, float]] = {}
    for state in core.positions:
        known = {
            "position": state.offset if state.phase is Phase.FETCH else None,
            "committed": core.committed_offset(state.tp),
            "records-lag": state.lag(core.isolation),
        }
        found[state.tp] = {name: value for name, value in known.items() if value is not None}
    return found
