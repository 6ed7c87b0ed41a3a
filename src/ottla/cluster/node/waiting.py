"""Waits for a completion on the event loop, but no longer than the node lives."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from ottla.common.completion import Completion

T = TypeVar("T")


class NodeStoppedError(Exception):
    """The node was asked to stop, or failed, before it was ready."""


async def completed(completion: Completion[T], stop: asyncio.Event) -> T:
    """Return the result. Raises NodeStoppedError once `stop` is set, and the exception of the completion."""
    done = asyncio.Event()
    completion.on_done(lambda _: done.set())
    waiters = [asyncio.ensure_future(event.wait()) for event in (done, stop)]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
    if not completion.done or stop.is_set():
        raise NodeStoppedError
    return completion.result()


async def finished(completion: Completion[T], timeout_s: float) -> bool:
    """Wait until the completion is done, at most `timeout_s`; returns whether it is."""
    done = asyncio.Event()
    completion.on_done(lambda _: done.set())
    try:
        await asyncio.wait_for(done.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
