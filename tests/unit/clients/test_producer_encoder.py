"""The encoder of the producer: one source that behaves the same compiled and as plain Python."""

from __future__ import annotations

import importlib.util
import inspect
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ottla.clients.producer import _encoder as installed
from ottla.clients.producer.batch import COMPILED, Batch, Event, PartitionQueue
from ottla.clients.producer.runtime import Runtime
from ottla.records import EncodedRecords, Record, kernels


def load_plain() -> ModuleType:
    """The source of the encoder as plain Python, beside the compiled module."""
    source = Path(installed.__file__).parent / "_encoder.py"
    spec = importlib.util.spec_from_file_location("plain_encoder", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = load_plain()
compiled = installed if COMPILED else None


@pytest.fixture(params=["plain", "compiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    chosen: ModuleType | None = plain if request.param == "plain" else compiled
    if chosen is None:
        pytest.skip("the encoder is not compiled here")
    return chosen


class Waits:
    """A runtime in which a batch is acknowledged as soon as a caller waits for it."""

    def __init__(self) -> None:
        self.timeouts_s: list[float | None] = []

    def wait(self, batch: Any, timeout_s: float | None) -> None:
        self.timeouts_s.append(timeout_s)
        batch.base_offset = 100
        batch.done = batch.announced = True


def make_encoder(module: ModuleType, partitions: int = 1, batch_size: int = 1000, memory: int = 10_000) -> Any:
    encoder = module.RecordEncoder(batch_size, memory)
    topic = module.Partitions()
    for index in range(partitions):
        topic.queues.append(module.OpenQueue("t", index, Waits()))
    topic.sticky = topic.queues[0]
    encoder.topics["t"] = topic
    return encoder


def open_batch(module: ModuleType, encoder: Any, partition: int = 0) -> Any:
    queue = encoder.topics["t"].queues[partition]
    queue.open_batch = module.BatchRecords(queue)
    return queue.open_batch


def append(module: ModuleType, encoder: Any, value: Any, key: Any = None, **more: Any) -> Any:
    arguments = {"partition": None, "headers": (), "timestamp_ms": 1000, "callback": None, **more}
    return encoder.try_append(
        "t", arguments["partition"], key, value, arguments["headers"], arguments["timestamp_ms"],
        module.BlockingDelivery, arguments["callback"],
    )  # fmt: skip


def records_of(batch: Any) -> list[Record]:
    encoded = EncodedRecords(batch.out, 61, len(batch.out), batch.count, base_timestamp=batch.base_timestamp)
    return kernels.decode_records(encoded, Record)


def test_records_are_encoded_when_they_are_appended(module: ModuleType) -> None:
    encoder = make_encoder(module)
    batch = open_batch(module, encoder)
    rows = [
        (b"v", None, (), 1000), (None, b"k", (), 900), (b"", b"", (("n", b"x"), ("n", None)), 2000),
        (b"x" * 300, b"y" * 130, (("ü", b""),), 1000),
    ]  # fmt: skip
    for value, key, headers, timestamp in rows:
        assert append(module, encoder, value, key, headers=headers, timestamp_ms=timestamp) is not None
    assert [(r.value, r.key, tuple(r.headers), r.timestamp) for r in records_of(batch)] == rows
    encoded, count, base, latest, _ = kernels.encode_records([(t, k, v, h) for v, k, h, t in rows], None)
    assert batch.out == encoded
    assert (batch.count, batch.base_timestamp, batch.max_timestamp) == (count, base, latest)
    assert batch.size == encoder.memory_used == len(encoded) - 61


def test_key_selects_the_same_partition_as_in_other_clients(module: ModuleType) -> None:
    encoder = make_encoder(module, partitions=6)
    for partition in range(6):
        open_batch(module, encoder, partition)
    assert append(module, encoder, b"v", b"21").partition == 0
    assert append(module, encoder, b"v", b"21", partition=5).partition == 5
    assert append(module, encoder, b"v", partition=6) is None
    assert append(module, encoder, b"v", partition=-1) is None


@pytest.mark.parametrize(("value", "key"), [("text", None), (bytearray(b"v"), None), (b"v", "key"), (7, b"k")])
def test_key_or_value_that_is_not_bytes_takes_the_slow_path(module: ModuleType, value: object, key: object) -> None:
    encoder = make_encoder(module)
    batch = open_batch(module, encoder)
    assert append(module, encoder, value, key) is None
    assert batch.count == encoder.memory_used == 0


def test_batch_size_and_memory_limit_what_is_appended(module: ModuleType) -> None:
    encoder = make_encoder(module, batch_size=500, memory=700)
    assert append(module, encoder, b"v") is None, "no batch is open"
    first = open_batch(module, encoder)
    assert append(module, encoder, b"x" * 600) is not None, "the first of a batch may exceed batch.size"
    assert append(module, encoder, b"v") is None
    open_batch(module, encoder)
    assert append(module, encoder, b"x" * 100) is None, "no memory is left"
    encoder.release(first.size)
    assert append(module, encoder, b"x" * 100) is not None
    encoder.topics["t"].queues[0].close_batch()
    assert append(module, encoder, b"v") is None


def test_future_returns_its_position_or_raises_its_error(module: ModuleType) -> None:
    encoder = make_encoder(module)
    batch = open_batch(module, encoder)
    first, second, third = (append(module, encoder, b"v", timestamp_ms=time) for time in (5, 6, 7))
    assert not first.done()
    assert first.result(3.5) == ("t", 0, 100, 5)
    assert batch.queue.runtime.timeouts_s == [3.5]
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


def test_callbacks_are_recorded_with_their_future(module: ModuleType) -> None:
    encoder = make_encoder(module)
    batch = open_batch(module, encoder)
    made = [append(module, encoder, b"v", callback=call) for call in (print, None, repr)]
    assert batch.callbacks == [made[0], print, made[2], repr]


def test_compiled_and_plain_have_the_same_signatures() -> None:
    if compiled is None:
        pytest.skip("the encoder is not compiled here")
    for name in ("send", "_send_slowly"):
        ours, theirs = (inspect.signature(getattr(m.FastSend, name)) for m in (plain, compiled))
        assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ]
    assert compiled.FastSend.send.__doc__ == plain.FastSend.send.__doc__


def test_threads_append_without_a_lock_when_compiled() -> None:
    """Four threads append to batches that a fifth closes: every record is in one batch, and every byte is counted."""
    if compiled is None:
        pytest.skip("the encoder is not compiled here")
    encoder = make_encoder(compiled, batch_size=1 << 20, memory=1 << 40)
    queue = encoder.topics["t"].queues[0]
    taken: list[list[Any]] = [[] for _ in range(4)]
    stop = threading.Event()

    def fill(mine: list[Any]) -> None:
        while not stop.is_set():
            delivery = append(compiled, encoder, b"v", timestamp_ms=len(mine))
            if delivery is not None:
                mine.append(delivery)

    threads = [threading.Thread(target=fill, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    batches = []
    for ordinal in range(2000):
        batches.append(compiled.BatchRecords(queue))
        queue.open_batch = batches[-1]
        queue.close_batch()
        if ordinal % 2:
            encoder.release(batches[-1].size)
    stop.set()
    for thread in threads:
        thread.join(10)
    total = sum(map(len, taken))
    assert total == sum(batch.count for batch in batches)
    assert encoder.memory_used == sum(batch.size for batch in batches[::2])
    places = {(id(delivery._batch), delivery._index) for mine in taken for delivery in mine}
    assert len(places) == total
    assert all(len(records_of(batch)) == batch.count for batch in batches)


class TestBatch:
    def batch(self) -> Batch:
        return PartitionQueue("t", 0, Runtime()).add()

    def test_callbacks_run_in_order_and_a_failing_one_does_not_stop_the_next(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        batch = self.batch()
        seen: list[Any] = []

        def fails(_: Any) -> None:
            raise RuntimeError("no")

        batch.callbacks = ["first", seen.append, "second", fails, "third", seen.append]
        batch.finish(0, -1, None)
        batch.announce()
        assert seen == ["first", "third"]
        assert "callback failed" in caplog.text

    def test_illegal_transition_is_an_error(self) -> None:
        batch = self.batch()
        with pytest.raises(KeyError):
            batch.move(Event.RETURNED)
        batch.move(Event.SENT)
        with pytest.raises(KeyError):
            batch.replace_by([])
        batch.finish(0, -1, None)
        for event in Event:
            with pytest.raises(KeyError):
                batch.move(event)
