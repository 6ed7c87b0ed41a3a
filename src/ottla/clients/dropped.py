"""Closes clients that the program drops without `close`: they warn, finish their work and release their resources.

The garbage collector must be able to collect the client, so its thread and loop must not refer to it.
"""

from __future__ import annotations

import asyncio
import os
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.clients.driver import Driver

Finish = Callable[[], Coroutine[Any, Any, object]]
_finishing: set[asyncio.Task[object]] = set()


def when_dropped(
    client: object, describe: Callable[[], str], driver: Driver, finish: Finish
) -> weakref.finalize[Any, Any]:
    """Close a blocking client when it is collected: run `finish` on the driver's loop, then close the driver.

    Returns a finalizer, which `close` must `detach`. Neither function may refer to the client.
    """

    async def finish_and_close() -> None:
        try:
            await finish()
        finally:
            driver.close()

    def dropped() -> None:
        if driver.closed or driver.is_foreign:
            return
        text = describe()
        driver.call_soon(_start, finish_and_close)
        _warn(text)  # last, because it raises where warnings are errors

    return _finalizer(client, dropped)


def when_dropped_async(
    client: object, describe: Callable[[], str], loop_of: Callable[[], asyncio.AbstractEventLoop | None], finish: Finish
) -> weakref.finalize[Any, Any]:
    """Close an asyncio client when it is collected, if its loop still runs. See `when_dropped`."""

    pid = os.getpid()

    def dropped() -> None:
        loop = loop_of()
        if loop is None or loop.is_closed() or os.getpid() != pid:
            return
        text = describe()
        loop.call_soon_threadsafe(_start, finish)
        _warn(text)  # last, because it raises where warnings are errors

    return _finalizer(client, dropped)


def _finalizer(client: object, dropped: Callable[[], None]) -> weakref.finalize[Any, Any]:
    finalizer = weakref.finalize(client, dropped)
    finalizer.atexit = False
    return finalizer


def _warn(what: str) -> None:
    warnings.warn(f"unclosed {what}", ResourceWarning, stacklevel=3)


def _start(finish: Finish) -> None:
    task: asyncio.Task[object] = asyncio.get_running_loop().create_task(finish())
    _finishing.add(task)
    task.add_done_callback(_finishing.discard)
