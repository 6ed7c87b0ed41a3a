"""The metrics of a consumer, by the names of Kafka's consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.positions import Phase
from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.core import ConsumerCore
    from ottla.clients.consumer.fetch_core import FetchCore


def metrics(fetch: FetchCore) -> dict[str, float]:
    isolation_level = fetch.settings.isolation_level
    lags = [lag for state in fetch.positions if (lag := state.lag(isolation_level)) is not None]
    return {
        "records-consumed-total": fetch.delivery.records_consumed,
        "bytes-consumed-total": fetch.delivery.bytes_consumed,
        "records-lag-max": max(lags, default=0),
        "assigned-partitions": len(fetch.positions),
        "buffered-bytes": fetch.positions.buffered_bytes,
    }


def partition_metrics(core: ConsumerCore) -> dict[TopicPartition, dict[str, float]]:
    """Return the position, the committed offset and the lag of each partition, if they are known."""
    found: dict[TopicPartition, dict[str, float]] = {}
    for state in core.fetch.positions:
        known = {
            "position": state.offset if state.phase is Phase.FETCH else None,
            "committed": core.committed_offset(state.tp),
            "records-lag": state.lag(core.fetch.settings.isolation_level),
        }
        found[state.tp] = {name: value for name, value in known.items() if value is not None}
    return found
