"""Waiting for batches: from a thread of the program, or from asyncio.

Waiting ends the linger of the batch. The core and the connection are the same for all records; a thread that waits only
wakes the loop that runs the core, and sleeps until its batch is announced.
"""

from __future__ import annotations

import asyncio
from _thread import allocate_lock
from typing import TYPE_CHECKING

from ottla.clients.errors import ClientError, RequestTimedOut
from ottla.clients.producer.batch import Batch

if TYPE_CHECKING:
    from ottla.clients.driver import Driver
    from ottla.clients.producer.sender import Sender


class BlockingWaits:
    """Lets threads of the program wait for batches of a blocking producer."""

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
    """Wait until the batch is announced, on the producer's loop."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if batch.wait_with(lambda: settle(done)):
        batch.queue.runtime.hurry()
        await done


def settle(future: asyncio.Future[None]) -> None:
    """Complete a future whose waiter may have been cancelled."""
    if not future.done():
        future.set_result(None)
