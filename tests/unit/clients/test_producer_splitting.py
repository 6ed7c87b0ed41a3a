"""Batches that are too large for their topic are split; records stay in order and futures find their record."""

from __future__ import annotations

import os

import pytest

from ottla.clients.errors import ClientError, ConnectionLost, MessageTooLarge
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.batch import Batches
from tests.simulation.world.producers import World

from .test_producer_core import error_of

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "30")))


def send(world: World, value: bytes, partition: int = 0) -> Delivery:
    delivery = world.send(value, partition=partition)
    assert delivery is not None
    return delivery


@pytest.mark.parametrize("idempotent", [True, False])
def test_too_large_batch_is_written_in_pieces_before_later_records(idempotent: bool) -> None:
    world = World(batch_size=2000, linger_ms=5, idempotent=idempotent, max_in_flight=5 if idempotent else 1)
    world.learn()
    first = send(world, b"known")
    world.run(until=first.done)
    world.logs[0].max_bytes = 400
    deliveries = [send(world, b"%040d" % i) for i in range(200)]
    world.run(until=lambda: all(d.done() for d in deliveries))
    assert world.logs[0].values == [b"known", *(b"%040d" % i for i in range(200))]
    assert [d.peek().offset for d in deliveries] == list(range(1, 201))
    assert world.core.accumulator.encoder.memory_used == 0


def test_refused_size_is_remembered_and_later_batches_are_split_first() -> None:
    world = World(batch_size=2000, linger_ms=5)
    world.learn()
    world.logs[0].max_bytes = 400
    deliveries = [send(world, b"%040d" % i) for i in range(40)]
    world.run(until=lambda: all(d.done() for d in deliveries))
    before = len(world.sends)
    deliveries = [send(world, b"%040d" % i) for i in range(40)]
    world.run(until=lambda: all(d.done() for d in deliveries))
    assert all(batch.pieces is None for sent in world.sends[before:] for batch in sent.batches)


def test_future_is_done_with_its_piece_and_callbacks_keep_their_order() -> None:
    world = World(batch_size=2000, linger_ms=5)
    world.learn()
    first = send(world, b"known")
    world.run(until=first.done)
    world.logs[0].max_bytes = 400
    seen: list[int] = []
    deliveries = []
    for i in range(20):
        delivery = world.core.accumulator.append(
            "t", 0, (None, b"%040d" % i, (), world.now_ms), Delivery, lambda d: seen.append(d.peek().offset)
        )
        assert delivery is not None
        deliveries.append(delivery)
    world.core.step(world.now_ms)
    whole = deliveries[0]._batch
    woken: list[bool] = []
    assert whole.wait_with(lambda: woken.append(True))
    world.run(until=deliveries[0].done)
    assert not deliveries[-1].done()
    assert not whole.done
    assert not woken
    assert seen
    world.run(until=deliveries[-1].done)
    assert whole.done
    assert woken == [True]
    assert seen == list(range(1, 21))
    ranges = Batches([whole]).peek()
    assert ranges[0].first_offset == 1
    assert sum(row.records for row in ranges) == 20


def test_single_too_large_record_fails_and_its_neighbors_are_written() -> None:
    world = World(batch_size=2000, linger_ms=5)
    world.learn()
    world.logs[0].max_bytes = 400
    values = [b"a" * 100, b"b" * 100, b"c" * 700, b"d" * 100, b"e" * 100]
    deliveries = [send(world, value) for value in values]
    world.run(until=lambda: all(d.done() for d in deliveries))
    error = error_of(deliveries[2])
    assert isinstance(error, MessageTooLarge)
    assert "770 bytes" in str(error)
    assert "max.message.bytes" in str(error)
    assert [error_of(d) for d in deliveries[:2] + deliveries[3:]] == [None] * 4
    assert world.logs[0].values == [v for v in values if v[:1] != b"c"]


def test_batch_sent_before_the_limit_was_lowered_is_not_written_twice() -> None:
    world = World(batch_size=2000, linger_ms=5, retry_backoff_ms=50)
    world.learn()
    first = send(world, b"known")
    world.run(until=first.done)
    world.lose_answer = 1.0
    deliveries = [send(world, b"%040d" % i) for i in range(20)]
    world.run(until=lambda: len(world.logs[0].values) == 21)
    world.lose_answer = 0.0
    world.logs[0].max_bytes = 600
    world.run(until=lambda: all(d.done() for d in deliveries))
    assert isinstance(error_of(deliveries[0]), ConnectionLost)
    after = send(world, b"after")
    world.run(until=after.done)
    assert world.logs[0].values == [b"known", *(b"%040d" % i for i in range(20)), b"after"]


def test_pieces_inherit_the_deadline_of_their_batch() -> None:
    world = World(batch_size=2000, linger_ms=5, delivery_timeout_ms=3000)
    world.learn()
    first = send(world, b"known")
    world.run(until=first.done)
    world.logs[0].max_bytes = 400
    start = world.now_ms
    early = [send(world, b"%040d" % i) for i in range(40)]
    world.run(until=lambda: early[0]._batch.pieces is not None)
    world.down.add(0)
    world.run(for_ms=1000)
    late = send(world, b"late")
    world.run(until=early[-1].done)
    assert 3000 <= world.now_ms - start <= 3010
    world.run(until=late.done)
    assert 4000 <= world.now_ms - start <= 4030


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_are_written_once_in_order_while_limits_change(seed: int) -> None:
    """Limits change while requests and responses are lost and leaders move."""
    world = World(seed, partitions=2, nodes=2, batch_size=1500, linger_ms=2, retry_backoff_ms=10)
    world.latest_arrival_ms = 2900
    world.learn()
    random = world.random
    world.lose_request, world.lose_answer, world.delay_answer = (random.random() * 0.1 for _ in range(3))
    deliveries: list[tuple[bytes, Delivery]] = []
    for i in range(400):
        value = b"%05d-" % i + b"x" * random.randrange(100)
        delivery = send(world, value, random.randrange(2))
        deliveries.append((value, delivery))
        if random.random() < 0.1:
            world.wait_for(delivery)
        if random.random() < 0.1:
            world.run(for_ms=random.randrange(1, 30))
        if random.random() < 0.02:
            world.move_leader(random.randrange(2), random.randrange(2))
        if random.random() < 0.02:
            world.logs[random.randrange(2)].max_bytes = random.choice((200, 400, 800, 1_000_000))
    world.run(until=lambda: all(d.done() for _, d in deliveries))
    world.run(for_ms=10_000)
    for partition, log in world.logs.items():
        assert len(log.values) == len(set(log.values)), f"seed {seed}: doubled in {partition}"
        assert log.values == sorted(log.values, key=lambda v: v or b""), f"seed {seed}: out of order in {partition}"
        acknowledged = {value for value, d in deliveries if d.partition == partition and error_of(d) is None}
        assert acknowledged <= set(log.values)
    failed: list[ClientError] = []
    for value, delivery in deliveries:
        error = error_of(delivery)
        if error is None:
            assert world.logs[delivery.partition].values[delivery.peek().offset] == value
        else:
            assert isinstance(error, ConnectionLost), "only what was sent before the limit fell"
            failed.append(error)
    assert len(failed) < 40
    assert world.core.accumulator.encoder.memory_used == 0
