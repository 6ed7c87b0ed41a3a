"""Producer ids for this broker's clients, out of blocks that the controller hands out (KIP-730).

What is left of a block when the broker stops is never given: an id must not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError

if TYPE_CHECKING:
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class ProducerIds:
    """The rest of a block, and who waits for the next one."""

    def __init__(self, allocate: Callable[[], Completion[AllocateProducerIdsResponse]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._waiting: list[Completion[int]] = []

    def next_id(self) -> Completion[int]:
        """An id that was never given before; fails as the allocation of a block does."""
        completion: Completion[int] = Completion()
        self._waiting.append(completion)
        if len(self._waiting) == 1:
            self._serve()
        return completion

    def _serve(self) -> None:
        """Give out what there is. Whoever waits is the sign that a block is on its way."""
        while self._waiting and self._next < self._end:
            completion = self._waiting[0]
            self._next += 1
            number = self._next - 1
            self._waiting.pop(0)
            completion.complete(number)
        if self._waiting:
            self._allocate().on_done(self._allocated)

    def _allocated(self, done: Completion[AllocateProducerIdsResponse]) -> None:
        try:
            block = done.result()
        except KafkaError as error:
            waiting, self._waiting = self._waiting, []
            for completion in waiting:
                completion.fail(error)
            return
        self._next = block.producer_id_start
        self._end = block.producer_id_start + block.producer_id_len
        self._serve()
