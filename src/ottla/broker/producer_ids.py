"""Producer ids for this broker's clients, out of blocks that the controller hands out (KIP-730).

What is left of a block when the broker stops is never given: an id must not come back. Nobody waits for a block that
was not asked for: whatever an allocation fails with, all who wait fail with it, and who comes next asks anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.completion import Completion

if TYPE_CHECKING:
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class ProducerIds:
    """The rest of a block, and who waits for the next one."""

    def __init__(self, allocate: Callable[[], Completion[AllocateProducerIdsResponse]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._waiting: list[Completion[int]] = []
        self._asked = False

    def next_id(self) -> Completion[int]:
        """An id that was never given before; fails as the allocation of a block does."""
        completion: Completion[int] = Completion()
        self._waiting.append(completion)
        if not self._asked:
            self._serve()
        return completion

    def _serve(self) -> None:
        """Give out what there is, and ask for a block if that is not enough."""
        while self._waiting and self._next < self._end:
            completion = self._waiting[0]
            self._next += 1
            number = self._next - 1
            self._waiting.pop(0)
            completion.complete(number)
        if self._waiting and not self._asked:
            allocation = self._allocate()
            self._asked = True
            allocation.on_done(self._allocated)

    def _allocated(self, done: Completion[AllocateProducerIdsResponse]) -> None:
        self._asked = False
        try:
            block = done.result()
        except Exception as error:  # noqa: BLE001 - not swallowed: whoever waits gets it
            waiting, self._waiting = self._waiting, []
            for completion in waiting:
                completion.fail(error)
            return
        self._next = block.producer_id_start
        self._end = block.producer_id_start + block.producer_id_len
        self._serve()
