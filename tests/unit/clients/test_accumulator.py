"""The accumulator is one source, compiled or not: both ways it does the same, and compiled it needs no lock."""

from __future__ import annotations

import inspect
import threading
from random import Random
from types import ModuleType
from typing import Any

import pytest

from ottla.clients.producer import accumulator as plain
from ottla.records import Record, kernels

try:
    from ottla.clients.producer import _accumulator as compiled  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    compiled = None


@pytest.fixture(params=["plain", "compiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    chosen: ModuleType | None = plain if request.param == "plain" else compiled
    if chosen is None:
        pytest.skip("the accumulator is not compiled here")
    return chosen


class Owner:
    waited: list[Any]

    def __init__(self) -> None:
        self.waited = []
        self.shell = self

    def wait(self, batch: Any, timeout_s: float | None) -> None:
        self.waited.append(timeout_s)
        batch.finish(100, -1, None)


def accumulate(module: ModuleType, partitions: int = 1, batch_size: int = 1000, room: int = 10_000) -> Any:
    made = module.Accumulator(batch_size, room)
    topic = module.TopicQueues(Random(1))
    for index in range(partitions):
        topic.queues.append(module.Queue("t", index, Owner()))
    topic.next_sticky()
    made.known["t"] = topic
    return made


def open_batch(module: ModuleType, accumulator: Any, partition: int = 0) -> Any:
    queue = accumulator.known["t"].queues[partition]
    queue.open = module.Batch(queue, 0)
    return queue.open


def append(module: ModuleType, accumulator: Any, value: Any, key: Any = None, **more: Any) -> Any:
    arguments = {"partition": None, "headers": (), "timestamp_ms": 1000, "callback": None, **more}
    return accumulator.try_append(
        "t", arguments["partition"], key, value, arguments["headers"], arguments["timestamp_ms"],
        module.BlockingDelivery, arguments["callback"],
    )  # fmt: skip


def records_of(batch: Any) -> list[Record]:
    return kernels.decode_records(batch.out, 61, len(batch.out), batch.count, 0, batch.base_timestamp, None, Record)


def test_records_are_encoded_as_they_come(module: ModuleType) -> None:
    accumulator = accumulate(module)
    batch = open_batch(module, accumulator)
    rows = [
        (b"v", None, (), 1000), (None, b"k", (), 900), (b"", b"", (("n", b"x"), ("n", None)), 2000),
        (b"x" * 300, b"y" * 130, (("ü", b""),), 1000),
    ]  # fmt: skip
    for value, key, headers, timestamp in rows:
        assert append(module, accumulator, value, key, headers=headers, timestamp_ms=timestamp) is not None
    assert [(r.value, r.key, tuple(r.headers), r.timestamp) for r in records_of(batch)] == rows
    encoded, count, base, latest, _ = kernels.encode_records([(t, k, v, h) for v, k, h, t in rows], None)
    assert batch.out == encoded
    assert (batch.count, batch.base_timestamp, batch.max_timestamp) == (count, base, latest)
    assert batch.size == accumulator.used == len(encoded) - 61


def test_a_key_goes_where_every_client_puts_it(module: ModuleType) -> None:
    accumulator = accumulate(module, partitions=6)
    for partition in range(6):
        open_batch(module, accumulator, partition)
    assert append(module, accumulator, b"v", b"21").partition == 0
    assert append(module, accumulator, b"v", b"21", partition=5).partition == 5
    assert append(module, accumulator, b"v", partition=6) is None
    assert append(module, accumulator, b"v", partition=-1) is None


@pytest.mark.parametrize(("value", "key"), [("text", None), (bytearray(b"v"), None), (b"v", "key"), (7, b"k")])
def test_what_is_not_bytes_is_left_to_others(module: ModuleType, value: object, key: object) -> None:
    accumulator = accumulate(module)
    batch = open_batch(module, accumulator)
    assert append(module, accumulator, value, key) is None
    assert batch.count == accumulator.used == 0


def test_no_more_than_fits_goes_in(module: ModuleType) -> None:
    accumulator = accumulate(module, batch_size=500, room=700)
    assert append(module, accumulator, b"v") is None, "no batch is open"
    first = open_batch(module, accumulator)
    assert append(module, accumulator, b"x" * 600) is not None, "the first of a batch may exceed batch.size"
    assert append(module, accumulator, b"v") is None
    open_batch(module, accumulator)
    assert append(module, accumulator, b"x" * 100) is None, "no memory is left"
    accumulator.release(first.size)
    assert append(module, accumulator, b"x" * 100) is not None
    accumulator.known["t"].queues[0].close_open()
    assert append(module, accumulator, b"v") is None


def test_a_future_tells_how_it_ended(module: ModuleType) -> None:
    accumulator = accumulate(module)
    batch = open_batch(module, accumulator)
    first, second, third = (append(module, accumulator, b"v", timestamp_ms=time) for time in (5, 6, 7))
    assert not first.done()
    assert first.result(3.5) == ("t", 0, 100, 5)
    assert batch.queue.owner.waited == [3.5]
    assert second.exception() is None
    assert third.peek() == ("t", 0, 102, 7)
    batch.log_append_time_ms = 99
    assert third.peek().timestamp == 99
    batch.error = ValueError("all")
    batch.record_errors = {1: KeyError("second")}
    with pytest.raises(ValueError, match="all"):
        first.result()
    with pytest.raises(KeyError):
        second.peek()
    assert "second" in repr(second)


def test_callbacks_run_in_order_and_one_that_fails_does_not_stop_the_next(
    module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    accumulator = accumulate(module)
    batch = open_batch(module, accumulator)
    seen: list[Any] = []

    def fails(_: Any) -> None:
        raise RuntimeError("no")

    made = [append(module, accumulator, b"v", callback=call) for call in (seen.append, fails, None, seen.append)]
    batch.finish(0, -1, None)
    batch.announce()
    assert seen == [made[0], made[3]]
    assert "callback failed" in caplog.text


def test_compiled_and_plain_have_the_same_signatures() -> None:
    if compiled is None:
        pytest.skip("the accumulator is not compiled here")
    for name in ("send", "_send_slowly"):
        ours, theirs = (inspect.signature(getattr(m.Front, name)) for m in (plain, compiled))
        assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ]
    assert compiled.Front.send.__doc__ == plain.Front.send.__doc__


def test_threads_append_without_a_lock_where_it_is_compiled() -> None:
    """Four threads fill batches that a fifth closes and ends: every record is in one batch, every byte is counted."""
    if compiled is None:
        pytest.skip("the accumulator is not compiled here")
    accumulator = accumulate(compiled, batch_size=1 << 20, room=1 << 40)
    queue = accumulator.known["t"].queues[0]
    taken: list[list[Any]] = [[] for _ in range(4)]
    stop = threading.Event()

    def fill(mine: list[Any]) -> None:
        while not stop.is_set():
            delivery = append(compiled, accumulator, b"v", timestamp_ms=len(mine))
            if delivery is not None:
                mine.append(delivery)

    threads = [threading.Thread(target=fill, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    batches = []
    for ordinal in range(2000):
        batches.append(compiled.Batch(queue, ordinal))
        queue.open = batches[-1]
        queue.close_open()
        if ordinal % 2:
            accumulator.release(batches[-1].size)
    stop.set()
    for thread in threads:
        thread.join(10)
    total = sum(map(len, taken))
    assert total == sum(batch.count for batch in batches)
    assert accumulator.used == sum(batch.size for batch in batches[::2])
    places = {(id(delivery._batch), delivery._index) for mine in taken for delivery in mine}
    assert len(places) == total
    assert all(len(records_of(batch)) == batch.count for batch in batches)
