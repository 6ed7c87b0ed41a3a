"""Producer ids for this broker's clients, from blocks that the controller allocates (KIP-730).

The rest of a block is lost when the broker stops: an id must not be allocated twice. If an allocation fails, all
waiting requests fail with its error, and the next request starts another allocation. So no request waits for a block
that was not requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.completion import Completion

if TYPE_CHECKING:
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class ProducerIds:
    """The rest of the current block, and the requests that wait for the next block."""

    def __init__(self, allocate: Callable[[], Completion[AllocateProducerIdsResponse]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._waiting: list[Completion[int]] = []
        self._is_allocating = False

    def next_id(self) -> Completion[int]:
        """Return an id that was never returned before; fails with the error of a block's allocation."""
        completion: Completion[int] = Completion()
        self._waiting.append(completion)
        if not self._is_allocating:
            self._serve()
        return completion

    def _serve(self) -> None:
        """Complete waiting requests from the block, and allocate another block if some are left."""
        while self._waiting and self._next < self._end:
            completion = self._waiting[0]
            self._next += 1
            number = self._next - 1
            self._waiting.pop(0)
            completion.complete(number)
        if self._waiting and not self._is_allocating:
            allocation = self._allocate()
            self._is_allocating = True
            allocation.on_done(self._allocated)

    def _allocated(self, done: Completion[AllocateProducerIdsResponse]) -> None:
        self._is_allocating = False
        if done.error is not None:
            waiting, self._waiting = self._waiting, []
            for completion in waiting:
                completion.fail(done.error)
            return
        block = done.result()
        self._next = block.producer_id_start
        self._end = block.producer_id_start + block.producer_id_len
        self._serve()
