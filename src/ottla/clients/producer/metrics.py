"""What a producer counts, by the names of the metrics of Kafka's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore


def metrics(core: ProducerCore) -> dict[str, float]:
    """Counts of records and memory. Needs no lock."""
    pending = core.pending_records()
    return {
        "record-send-total": core.ended.acknowledged + core.ended.failed + pending,
        "record-acknowledged-total": core.ended.acknowledged,
        "record-error-total": core.ended.failed,
        "batch-retry-total": core.retried,
        "records-pending": pending,
        "buffer-total-bytes": core.accumulator.room,
        "buffer-available-bytes": core.accumulator.room - core.accumulator.used,
    }
