"""How a program waits for what it sent: the futures that `send` and `send_batch` give out, blocking and for asyncio."""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from ottla.clients.errors import ClientError, RequestTimedOut
from ottla.clients.producer.batch import AppendedRange, Batch, Batches, Delivery, RecordMetadata

if TYPE_CHECKING:
    from ottla.clients.driver import Driver
    from ottla.clients.producer.sender import Sender


def wait(batch: Batch, timeout_s: float | None) -> None:
    lock = allocate_lock()
    lock.acquire()
    if not batch.wait_with(lock.release):
        return
    batch.queue.owner.shell.hurry()
    if not lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
        raise RequestTimedOut(f"The records for {batch.queue} are neither acknowledged nor failed after {timeout_s} s")


async def wait_async(batch: Batch) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if batch.wait_with(lambda: settle(done)):
        batch.queue.owner.shell.hurry()
        await done


def settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class BlockingBatches(Batches):
    """The future of the rows of one `send_batch`."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> list[AppendedRange]:
        """Where the rows are, by partition, once all are acknowledged. Blocks.

        Raises the first failure (rows of other partitions may have been written), or RequestTimedOut.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for batch in self:
            if not batch.announced:
                wait(batch, None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self.peek()


class AsyncDelivery(Delivery):
    """The future of one record: await it for its RecordMetadata, or what it failed with. Ends its batch's linger.

    `result()` and `exception()` do not wait, as those of asyncio.Future: a callback calls them.
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._pending()
        if batch is not None:
            yield from wait_async(batch).__await__()
        return self.peek()

    def result(self) -> RecordMetadata:
        """Where the acknowledged record is. Raises what the delivery failed with, InvalidStateError before its end."""
        self._check_done()
        return self.peek()

    def exception(self) -> Exception | None:
        """What the delivery failed with, None if it is acknowledged. Raises InvalidStateError before its end."""
        self._check_done()
        return self._batch.error_of(self._index)

    def _check_done(self) -> None:
        if not self.done():
            raise asyncio.InvalidStateError(f"The record for {self._batch.queue} is on its way: await its delivery")


class AsyncBatches(Batches):
    """The future of the rows of one `send_batch`: await it for their AppendedRanges."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[AppendedRange]]:
        for batch in self:
            if not batch.announced:
                yield from wait_async(batch).__await__()
        return self.peek()


class BlockingWaits:
    """Wakes the loop of a blocking producer, and lets threads of the program wait for a batch."""

    def __init__(self, sender: Sender, driver: Driver) -> None:
        self._sender = sender
        self._driver = driver

    def hurry(self) -> None:
        """End the linger of batches that a caller waits for. Raises Closed, and ClientError in a callback."""
        if self._driver.is_current_thread:
            raise ClientError("A callback must not wait for a delivery: it would wait for itself")
        self._driver.check()
        self._sender.wake()

    def wait(self, batch: Batch, timeout_s: float | None) -> None:
        """Block until the batch is announced. Raises RequestTimedOut, Closed, and ClientError in a callback."""
        if self._driver.closed:
            self._driver.check_fork()
        if not batch.announced:
            wait(batch, timeout_s)
