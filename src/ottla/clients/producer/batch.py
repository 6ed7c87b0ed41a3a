"""Batches and the futures of their records: `accumulator`, compiled where the record kernels are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.clients.producer.results import AppendedRange, RecordMetadata
from ottla.records import kernels

__all__ = [
    "COMPILED", "NO_HEADERS", "RECORD_OVERHEAD", "Accumulator", "AppendedRange", "Batch", "Batches", "BlockingDelivery",
    "Delivery", "Encoded", "Front", "Headers", "Queue", "RecordMetadata", "TopicQueues", "bound", "call_back",
    "in_callback",
]  # fmt: skip


def _is_compiled() -> bool:
    if not kernels.COMPILED:
        return False
    try:
        import ottla.clients.producer._accumulator  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:  # each extension may fail to build by itself
        return False
    return True


COMPILED = _is_compiled()  # and so `try_append` and `release` need no lock

if TYPE_CHECKING or not COMPILED:
    from ottla.clients.producer import accumulator as _chosen
else:
    from ottla.clients.producer import _accumulator as _chosen

NO_HEADERS = _chosen.NO_HEADERS
RECORD_OVERHEAD = _chosen.RECORD_OVERHEAD
Accumulator = _chosen.Accumulator
Batch = _chosen.Batch
BlockingDelivery = _chosen.BlockingDelivery
Delivery = _chosen.Delivery
Encoded = _chosen.Encoded
Front = _chosen.Front
Headers = _chosen.Headers
Queue = _chosen.Queue
TopicQueues = _chosen.TopicQueues
bound = _chosen.bound
call_back = _chosen.call_back
in_callback = _chosen.in_callback


class Batches:
    """Several batches that one call made: what `send_batch` gives out."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def done(self) -> bool:
        """Whether every batch is acknowledged or failed."""
        return all(batch.announced for batch in self._batches)

    def peek(self) -> list[AppendedRange]:
        """Where the rows are, once done; raises the first failure (other batches may have been written)."""
        leaves = [leaf for batch in self._batches for leaf in batch.leaves()]
        for batch in leaves:
            batch.looked_at = True
        for batch in leaves:
            if batch.error is not None:
                raise batch.error
        return [
            AppendedRange(batch.queue.topic, batch.queue.partition, batch.base_offset, batch.count) for batch in leaves
        ]
