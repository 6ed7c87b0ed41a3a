"""When the producer requests its id (KIP-98), and the id that it received."""

from __future__ import annotations

from ottla.clients.producer.metadata_refresh import FOREVER_MS

NO_ID = -1


class ProducerId:
    """The id and epoch of the producer. At most one request is in flight; a failed one is retried after a backoff."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = NO_ID
        self.failures = 0  # in a row
        self.is_refused = False  # by the broker, before any record needed the id: retry when a record does
        self._is_requesting = False
        self._not_before_ms = 0

    def next_ms(self) -> int:
        """When the next request is due; `FOREVER_MS` while one is in flight."""
        return FOREVER_MS if self._is_requesting else self._not_before_ms

    def sent(self) -> None:
        """A request is in flight."""
        self._is_requesting = True

    def received(self, producer_id: int, epoch: int) -> None:
        """The broker assigned this id."""
        self._is_requesting = False
        self.failures = 0
        self.producer_id, self.epoch = producer_id, epoch

    def failed(self, retry_at_ms: int) -> None:
        """The request failed; the next one is due at `retry_at_ms`."""
        self._is_requesting = False
        self._not_before_ms = retry_at_ms
        self.failures += 1
