"""Blocking clients derive their methods from the asyncio ones, and wait in the caller's thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time

import pytest

from ottla.clients import AsyncConsumer, AsyncProducer, AsyncShareConsumer, Consumer, Producer, ShareConsumer
from ottla.clients.waits import AsyncEvent, AsyncWaits, BlockingWaits, SignalSafeEvent, finish

PAIRS = ((Consumer, AsyncConsumer), (ShareConsumer, AsyncShareConsumer), (Producer, AsyncProducer))


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_derived_methods_have_the_signature_and_docstring_of_the_asyncio_ones(
    blocking: type, asynchronous: type
) -> None:
    derived = {name: method for name, method in vars(blocking).items() if hasattr(method, "__wrapped__")}
    assert {"close", "poll" if blocking is not Producer else "flush"} <= set(derived)
    for name, method in derived.items():
        original = getattr(asynchronous, name)
        assert inspect.iscoroutinefunction(original), name
        assert not inspect.iscoroutinefunction(method), name
        assert inspect.signature(method) == inspect.signature(original), name
        assert inspect.getdoc(method) == inspect.getdoc(original), name
        assert method.__qualname__ == f"{blocking.__name__}.{name}"


def test_coroutine_that_would_suspend_is_not_run_without_an_event_loop() -> None:
    ended: list[bool] = []

    async def suspends() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(AssertionError, match="event loop"):
        finish(suspends())
    assert ended == [True], "its `finally` has run"


def test_exception_of_a_coroutine_reaches_the_caller() -> None:
    async def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(fails())


def test_blocking_event_wakes_its_waiter_and_is_cleared_by_that() -> None:
    event = SignalSafeEvent()
    threading.Timer(0.05, event.set).start()
    assert finish(event.until(10))
    assert not finish(event.until(0))
    event.set()
    event.set()
    assert finish(event.until(None))


def test_asyncio_event_ends_its_wait_at_the_timeout() -> None:
    async def story() -> tuple[bool, bool]:
        event = AsyncEvent()
        early = await event.until(0.01)
        asyncio.get_running_loop().call_later(0.01, event.set)
        return early, await event.until(10)

    assert asyncio.run(story()) == (False, True)


def test_lock_that_stays_held_is_not_acquired_after_the_timeout() -> None:
    lock = threading.Lock()
    lock.acquire()
    begun = time.monotonic()
    assert not asyncio.run(AsyncWaits().acquire(lock, 0.05))
    assert not finish(BlockingWaits().acquire(lock, 0.05))
    assert time.monotonic() - begun < 5
    lock.release()
    assert asyncio.run(AsyncWaits().acquire(lock, 1))
    lock.release()
    assert finish(BlockingWaits().acquire(lock, 1))
