"""When the producer asks for its id (KIP-98), and what it was given."""

from __future__ import annotations

from ottla.clients.producer.metadata_refresh import FOREVER_MS

NO_ID = -1


class ProducerIdWish:
    """One question at a time, the next after a while if no id came of it."""

    def __init__(self) -> None:
        self.producer_id = self.epoch = NO_ID
        self.failures = 0  # in a row
        self.refused = False  # before a record needed it; who has no rights yet may have them when one does
        self._asking = False
        self._not_before_ms = 0

    def next_ms(self) -> int:
        """When the next question is due; far in the future while an answer is awaited."""
        return FOREVER_MS if self._asking else self._not_before_ms

    def asked(self) -> None:
        """The question is on its way."""
        self._asking = True

    def given(self, producer_id: int, epoch: int) -> None:
        """The answer."""
        self._asking = False
        self.failures = 0
        self.producer_id, self.epoch = producer_id, epoch

    def failed(self, next_ms: int) -> None:
        """No id came; not again before that time."""
        self._asking = False
        self._not_before_ms = next_ms
        self.failures += 1
