"""The metrics of a producer, with the names of Kafka's producer metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore


def metrics(core: ProducerCore) -> dict[str, float]:
    """Counts of records and memory. Needs no lock."""
    pending = core.pending_records()
    completed = core.accumulator.completed
    encoder = core.accumulator.encoder
    return {
        "record-send-total": completed.acknowledged + completed.failed + pending,
        "record-acknowledged-total": completed.acknowledged,
        "record-error-total": completed.failed,
        "batch-retry-total": core.outcomes.retried,
        "records-pending": pending,
        "buffer-total-bytes": encoder.memory_limit,
        "buffer-available-bytes": encoder.memory_limit - encoder.memory_used,
    }
