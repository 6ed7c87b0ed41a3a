"""Requests that wait until a partition's log reaches an offset."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TypeAlias

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError

Heap: TypeAlias = "list[tuple[int, int, Completion[None]]]"


class Waits:
    """Requests that wait until records are committed, flushed here (acks=1), or deleted by all replicas, by offset."""

    __slots__ = ("_sequence", "committed", "deleted", "flushed")

    def __init__(self) -> None:
        self._sequence = count()
        self.committed: Heap = []
        self.flushed: Heap = []
        self.deleted: Heap = []

    def add(self, heap: Heap, offset: int) -> Completion[None]:
        """A completion that completes when `heap` is completed up to `offset`."""
        completion: Completion[None] = Completion()
        heapq.heappush(heap, (offset, next(self._sequence), completion))
        return completion

    def fail(self, error: KafkaError) -> None:
        """Fail all waiting requests."""
        waiting = [*self.committed, *self.flushed, *self.deleted]
        self.committed, self.flushed, self.deleted = [], [], []
        for _, _, completion in waiting:
            completion.fail(error)


def complete_up_to(waiting: Heap, offset: int) -> None:
    """Complete the requests that wait for this offset, or for an earlier one."""
    while waiting and waiting[0][0] <= offset:
        heapq.heappop(waiting)[2].complete(None)
