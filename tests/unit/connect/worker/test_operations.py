"""Operations on connectors, such as validations, whose plugins wait for other systems."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla.connect.errors import RetriableError
from ottla.connect.worker import runtime as module
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.runtime import WorkerRuntime


def test_calls_that_hang_are_limited_and_delay_neither_others_nor_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPERATIONS", 10)
    listener: Any = None
    end, secrets = threading.Event(), Secrets()

    async def run() -> None:
        runtime = WorkerRuntime({"bootstrap.servers": "127.0.0.1:1"}, listener)
        hanging = [asyncio.ensure_future(runtime._in_thread(lambda: end.wait(60), secrets)) for _ in range(9)]
        await asyncio.sleep(0)
        assert await runtime._in_thread(lambda: 5, secrets) == 5
        hanging.append(asyncio.ensure_future(runtime._in_thread(lambda: end.wait(60), secrets)))
        await asyncio.sleep(0)
        hanging[0].cancel()
        await asyncio.wait([hanging[0]])
        with pytest.raises(RetriableError, match="10 operations on connectors wait for other systems"):
            await runtime._in_thread(lambda: 5, secrets)
        await runtime.close()
        for each in hanging:
            each.cancel()

    asyncio.run(run())  # does not wait for the threads
    assert not end.is_set()
    end.set()
