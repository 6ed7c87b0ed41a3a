"""Statuses that cannot be written at first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.clients.errors import AuthenticationFailed, ClientError, DeliveryTimedOut, MessageTooLarge
from ottla.connect.cluster import status_writer
from ottla.connect.cluster.status_writer import StatusWriter


class Brokers:
    """Fails writes with the errors in a list, from its end, then accepts them."""

    errors: list[ClientError] = []
    written: list[tuple[bytes, bytes | None]] = []

    def __init__(self, _: object) -> None:
        pass

    async def send(self, _: str, value: bytes | None, key: bytes) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.errors:
            done.set_exception(self.errors.pop())
        else:
            self.written.append((key, value))
            done.set_result(None)
        return done

    async def close(self, _: float) -> None:
        pass


async def write(errors: list[ClientError], *puts: tuple[Any, ...]) -> list[tuple[bytes, bytes | None]]:
    Brokers.errors, Brokers.written = errors, []
    writer = StatusWriter({}, "statuses")
    writer.start()
    for each in puts:
        writer.put(*each)
    try:
        assert await writer.flush(30)
    finally:
        await writer.close()
    return Brokers.written


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "AsyncProducer", Brokers)
    monkeypatch.setattr(status_writer, "_RETRY_S", 0.01)


def test_status_is_written_again_after_brokers_or_passwords_come_back() -> None:
    errors: list[ClientError] = [AuthenticationFailed("no"), DeliveryTimedOut("late")]
    assert asyncio.run(write(errors, ("a", b"1"), ("b", b"2"))) == [(b"a", b"1"), (b"b", b"2")]


def test_last_status_of_a_key_is_written() -> None:
    assert asyncio.run(write([DeliveryTimedOut("late")], ("a", b"1"), ("a", b"2"))) == [(b"a", b"2")]


def test_status_is_not_written_again_after_another_worker_has_written_one() -> None:
    assert asyncio.run(write([DeliveryTimedOut("late")], ("a", b"1", lambda: False))) == []


def test_status_that_no_broker_accepts_is_dropped() -> None:
    assert asyncio.run(write([MessageTooLarge("large")], ("a", b"1"), ("b", b"2"))) == [(b"b", b"2")]
