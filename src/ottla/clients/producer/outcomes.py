"""Decisions after the outcome of a sent batch: it is done, sent again, or split. Errors of records and batches.

`ProducerCore` asks after each response and each lost connection. A batch that is sent again returns to the front of its
queue, and its queue waits for the backoff. KIP-126 (splitting), KIP-360 (sequence gaps), KIP-580 (backoff).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.clients.errors import ClientError, ConnectionLost, DeliveryTimedOut, MessageTooLarge, error_for
from ottla.clients.producer.accumulator import RecordAccumulator
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.effects import SEQUENCE_GAPS, STALE_METADATA, Outcome
from ottla.clients.producer.metadata import MetadataRefresh
from ottla.clients.producer.settings import ProducerSettings
from ottla.common.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE


class BatchOutcomes:
    """Finishes, repeats or splits batches. Callers hold the lock of the core."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        refresh: MetadataRefresh,
        backoff_ms: Callable[[int], int],
    ) -> None:
        self.retried = 0  # number of batches that were sent again
        self._settings = settings
        self._accumulator = accumulator
        self._refresh = refresh
        self._backoff_ms = backoff_ms

    def judge(self, batch: Batch, outcome: Outcome, now_ms: int) -> bool:
        """Finish or retry the batch according to the broker's outcome; returns whether it is done now."""
        code, queue = outcome.error_code, batch.queue
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.retry_at_ms = 0
            queue.is_known = not queue.renumber  # otherwise it was a deleted topic of the same name
            return self._accumulator.finish(batch, None, outcome.base_offset, outcome.log_append_time_ms)
        if batch.done:
            return False
        if code in STALE_METADATA:
            self._refresh.missing.add(queue.topic)
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            return self._split_or_fail(batch, outcome.message)
        error = error_for(code, outcome.message)
        if code in SEQUENCE_GAPS and self._settings.idempotent:
            return self._handle_gap(batch, error, now_ms)
        if error.retriable:
            is_done = self.retry_or_fail(batch, error, now_ms)
            if outcome.has_moved:
                queue.retry_at_ms = now_ms
            return is_done
        if outcome.record_errors:
            batch.record_errors = {index: error_for(code, message) for index, message in outcome.record_errors}
            error = error_for(code, "Another record of the same batch was refused")
        return self._accumulator.finish(batch, error)

    def _handle_gap(self, batch: Batch, error: ClientError, now_ms: int) -> bool:
        """The broker expects another sequence number. Raise the epoch if no earlier batch can fill the gap."""
        queue = batch.queue
        if queue.is_oldest(batch):
            if batch.whole is not None and batch.unsure_until_ms:
                # A piece of a batch that was sent as a whole before it was refused as too large: it may be written.
                lost = ConnectionLost(f"{batch.count} records for {queue} may be written")
                return self._accumulator.finish(batch, lost)
            if (
                self._accumulator.transactions is not None
            ):  # all partitions share its epoch: the transaction must be aborted
                return self._accumulator.finish(batch, error)
            queue.renumber = batch.unsure_until_ms <= now_ms
        return self.retry_or_fail(batch, error, now_ms)

    def retry_or_fail(self, batch: Batch, error: ClientError, now_ms: int) -> bool:
        """Return the batch to its queue unless its retries or its time are used up; returns whether it is done now."""
        if batch.done:
            return False
        if self._settings.acks == 0 or batch.attempts > self._settings.retries or self._accumulator.fatal is not None:
            return self._accumulator.finish(batch, error)
        queue = batch.queue
        if batch.deadline_ms <= now_ms:
            late = DeliveryTimedOut(f"{batch.count} records for {queue} ran out of time; the last error: {error}")
            late.__cause__ = error
            return self._accumulator.finish(batch, late)
        self.retried += 1
        queue.put_back(batch, error)
        queue.retry_at_ms = now_ms + self._backoff_ms(batch.attempts - 1)
        self._accumulator.active[queue] = None
        return False

    def _split_or_fail(self, batch: Batch, message: str | None) -> bool:
        """Split a batch that the broker refused as too large, which does not count as a retry (KIP-126).

        Returns whether the batch is done now: a batch of one record fails.
        """
        queue = batch.queue
        if batch.count == 1:
            return self._accumulator.finish(batch, _too_large(batch, message))
        queue.too_large = min(queue.too_large, batch.size)
        queue.put_back(batch)
        self._accumulator.active[queue] = None
        self._accumulator.split(batch)
        return False


def _too_large(batch: Batch, message: str | None) -> MessageTooLarge:
    size = batch.size + HEADER_SIZE if batch.wire is None else len(batch.wire[0])
    return MessageTooLarge(
        f"A record for {batch.queue} takes {size} bytes as a batch of its own, more than max.message.bytes of the "
        f"topic (or message.max.bytes of the broker) allows{': ' + message if message else ''}"
    )


def expired_after(seconds: float, batch: Batch) -> DeliveryTimedOut:
    """The error of a batch without an outcome after delivery.timeout.ms. Its cause is the error of the last attempt."""
    sent = f"sent {batch.attempts} times without an answer" if batch.attempts else "never sent"
    if batch.error is not None:
        sent = f"sent {batch.attempts} times, the last error: {batch.error}"
    late = DeliveryTimedOut(f"{batch.count} records for {batch.queue} are not acknowledged after {seconds} s ({sent})")
    late.__cause__ = batch.error
    return late
