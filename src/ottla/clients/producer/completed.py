"""Batches with an outcome: counts of their records, and the batches that are not announced yet."""

from __future__ import annotations

from ottla.clients.producer.batch import Batch

LEAST_WAITING = 16


class CompletedBatches:
    """Counts of acknowledged and failed records, and the batches whose callbacks may not have run yet.

    `_waiting` is cleaned when it has twice as many batches as after the last cleaning: the cost per batch is constant.
    """

    def __init__(self) -> None:
        self.acknowledged = self.failed = 0
        self._waiting: list[Batch] = []
        self._limit = 2 * LEAST_WAITING

    def add(self, batch: Batch) -> None:
        """Count a batch that is done."""
        if batch.error is None:
            self.acknowledged += batch.count
        else:
            self.failed += batch.count
        if not batch.announced:
            if len(self._waiting) > self._limit:
                self._limit = 2 * max(len(self.unannounced()), LEAST_WAITING)
            self._waiting.append(batch)

    def unannounced(self) -> list[Batch]:
        """The batches that are done and not announced."""
        self._waiting = [batch for batch in self._waiting if not batch.announced]
        return self._waiting
