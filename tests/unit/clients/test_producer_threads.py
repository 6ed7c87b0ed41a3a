"""Threads between two steps of the producer's core: no record is lost, and every waiter is woken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients import ClientError, Producer
from ottla.clients.errors import Closed, Purged
from ottla.clients.producer._encoder import BlockingDelivery, Delivery
from ottla.clients.producer.batch import COMPILED, Batch
from ottla.clients.producer.effects import Send
from ottla.clients.producer.sender import Sender
from ottla.clients.producer.settings import read_settings
from ottla.records.batch import HEADER_SIZE
from ottla.records.kernels import append_record
from tests.simulation.world.producers import World


class Switches(list[Batch]):
    """Runs the code of another thread at the moment when a batch is added."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self.other = other

    def append(self, batch: Batch) -> None:
        super().append(batch)
        self.other()


@pytest.mark.skipif(not COMPILED, reason="records are appended without the lock only where it is compiled")
def test_record_of_another_thread_is_not_appended_to_a_batch_of_encoded_rows() -> None:
    world = World()
    world.learn()
    core, others = world.core, []

    def send() -> None:
        others.append(core.accumulator.encoder.try_append("t", 0, None, b"another's", (), 1, BlockingDelivery, None))

    core.accumulator._new = Switches(send)
    rows = bytearray(HEADER_SIZE)
    for index in range(3):
        append_record(rows, 0, index, None, b"row", ())
    batch = core.accumulator.append_encoded("t", 0, (rows, 3, 1, 1, 0))
    assert batch is not None
    world.run(until=lambda: batch.done)
    written = world.logs[0].values
    assert written.count(b"another's") == sum(other is not None for other in others)
    assert core.accumulator.encoder.memory_used == 0


def test_freed_memory_wakes_every_sender_that_waits() -> None:
    world = World(linger_ms=1000, buffer_memory=200)
    world.learn()
    world.run(for_ms=100)
    core = world.core
    delivery = core.accumulator.append("t", 0, (None, b"x" * 120, (), 1), Delivery)
    assert delivery is not None
    world.wait_for(delivery)
    woken: list[str] = []
    assert core.accumulator.append("t", 0, (None, b"y" * 120, (), 1), Delivery) is None
    core.accumulator.wait_for_change(lambda: woken.append("first"))
    assert core.accumulator.append("unknown", 0, (None, b"z", (), 1), Delivery) is None
    core.accumulator.wait_for_change(lambda: woken.append("second"))
    world.run(until=delivery.done)
    assert woken == ["first", "second"]


def test_wakes_before_the_core_runs_schedule_it_once() -> None:
    scheduled: list[Callable[[], None]] = []
    options, settings = read_settings({"bootstrap.servers": "127.0.0.1:1"})
    sender = Sender(options, settings)
    sender.call_soon = scheduled.append
    sender.execute = lambda effects: None  # type: ignore[method-assign,assignment] - without a loop
    sender.wake()
    sender.wake()
    assert scheduled == [sender.run_core]
    sender.run_core()
    sender.wake()
    assert scheduled == [sender.run_core, sender.run_core]


def test_batch_that_ends_before_its_request_is_sent_fails_no_other_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may wait for its connection while a batch in it expires or is aborted."""
    world = World(partitions=2)
    world.learn()
    for partition in range(2):
        world.send(b"x", partition)
    requests: list[Send] = []
    world._transmit = requests.append  # type: ignore[method-assign]
    world.run(until=lambda: bool(requests))
    [request] = requests
    ended, other = request.batches
    world.core.accumulator.give_up(ended, Purged("not sent"))
    options, settings = read_settings({"bootstrap.servers": "127.0.0.1:1"})
    sender = Sender(options, settings)
    sender.core = world.core
    monkeypatch.setattr("ottla.clients.producer.sender.now_ms", lambda: world.now_ms)
    sender.execute = world.perform  # type: ignore[method-assign,assignment]
    sender._transmit(None, request)  # type: ignore[arg-type] - nothing is sent
    assert not other.done
    del world._transmit  # type: ignore[method-assign]
    world.run(until=lambda: other.done)
    assert other.error is None


def test_wake_that_fails_does_not_suppress_later_wakes() -> None:
    def closed(_: Callable[[], None]) -> None:
        raise Closed("The client was closed")

    options, settings = read_settings({"bootstrap.servers": "127.0.0.1:1"})
    sender = Sender(options, settings)
    sender.call_soon = closed
    for _ in range(2):
        with pytest.raises(Closed):
            sender.wake()


def test_close_in_a_callback_raises_and_leaves_the_producer_open() -> None:
    """It would wait for itself. A half-closed producer would never wake threads that wait for records in flight."""
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:

        async def callback() -> None:
            producer.close()

        with pytest.raises(ClientError, match="callback"):
            producer._driver.run(callback())
        assert not producer._closed


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, ValueError])
def test_next_callback_runs_after_one_raised(kind: type[BaseException]) -> None:
    world = World(linger_ms=0)
    world.learn()
    called: list[int] = []

    def callback(number: int) -> Callable[[Delivery], None]:
        def call(_: Delivery) -> None:
            called.append(number)
            raise kind

        return call

    for number in range(2):
        world.core.accumulator.append("t", 0, (None, b"x", (), 1), Delivery, callback(number))
    world.run(until=lambda: bool(world.announced))
    assert called == [0, 1]
