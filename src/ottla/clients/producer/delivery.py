"""The futures that `send` and `send_batch` return, and waiting for their batches, which ends the linger of a batch.

The futures of `send` in the blocking producer are in `_encoder`.
"""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from collections.abc import Generator
from typing import Any

from ottla.clients.errors import RequestTimedOut
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.batch import Batch, Batches
from ottla.clients.producer.record_metadata import AppendedRange, RecordMetadata


def wait(batch: Batch, timeout_s: float | None) -> None:
    """Block until the batch is announced. Raises RequestTimedOut after `timeout_s` seconds."""
    lock = allocate_lock()
    lock.acquire()
    if not batch.wait_with(lock.release):
        return
    batch.queue.runtime.hurry()
    if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
        raise RequestTimedOut(f"The records for {batch.queue} are neither acknowledged nor failed after {timeout_s} s")


async def wait_async(batch: Batch) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle() -> None:
        if not done.done():  # its waiter may have been cancelled
            done.set_result(None)

    if batch.wait_with(settle):
        batch.queue.runtime.hurry()
        await done


class BlockingBatches(Batches):
    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> list[AppendedRange]:
        """The positions of the rows by partition, once all are acknowledged. Blocks.

        Raises the first failure (rows of other partitions may have been written), or RequestTimedOut.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for batch in self:
            if not batch.announced:
                wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self.peek()


class AsyncDelivery(Delivery):
    """The future of one record: awaiting it returns its RecordMetadata or raises its error, and ends the linger.

    `result()` and `exception()` do not wait, like the methods of asyncio.Future: they are for callbacks.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch: Any = self._pending()
        if batch is not None:
            yield from wait_async(batch).__await__()
        return self.peek()

    def result(self) -> RecordMetadata:
        """The position of the acknowledged record. Raises its error, or InvalidStateError while it is pending."""
        self._check_done()
        return self.peek()

    def exception(self) -> Exception | None:
        """The error of the record, None if it is acknowledged. Raises InvalidStateError while it is pending."""
        self._check_done()
        return self._batch.error_of(self._index)

    def _check_done(self) -> None:
        if not self.done():
            raise asyncio.InvalidStateError(f"The record for {self._batch.queue} is pending: await its delivery")


class AsyncBatches(Batches):
    """The future of the rows of one `send_batch` call: awaiting it returns their AppendedRanges."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[AppendedRange]]:
        for batch in self:
            if not batch.announced:
                yield from wait_async(batch).__await__()
        return self.peek()
