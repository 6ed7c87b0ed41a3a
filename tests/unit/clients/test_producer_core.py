"""The producer's core on a simulated cluster: acknowledged records are written once and in order."""

from __future__ import annotations

import os

import pytest

from ottla.clients.errors import (
    BufferExhausted,
    Closed,
    ConnectionLost,
    DeliveryTimedOut,
    InvalidRecord,
    MessageTooLarge,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.effects import Outcome
from ottla.clients.producer.record_metadata import RecordMetadata
from ottla.common.errors import ErrorCode
from tests.simulation.world.producers import LATENCY_MS, World

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "30")))


def error_of(delivery: Delivery | None) -> Exception | None:
    assert delivery is not None
    assert delivery.done()
    try:
        delivery.peek()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    return None


def test_records_within_one_linger_are_sent_in_one_batch() -> None:
    world = World()
    world.learn()
    deliveries = [world.send(b"%d" % i) for i in range(10)]
    world.run(until=lambda: all(d is not None and d.done() for d in deliveries))
    assert world.logs[0].values == [b"%d" % i for i in range(10)]
    assert [d.peek() for d in deliveries if d] == [RecordMetadata("t", 0, i, 1000 + 3) for i in range(10)]
    assert len(world.sends) == 1
    assert world.now_ms < 1030


def test_producer_id_refused_before_the_first_record_is_requested_again_for_a_record() -> None:
    world = World(linger_ms=0)
    give, refusal = world._give_producer_id, error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    world._give_producer_id = lambda: world.core.producer_id_failed(refusal, world.now_ms)  # type: ignore[method-assign]
    world.learn()
    world.run(until=lambda: world.core._id.is_refused)
    assert world.core.accumulator.fatal is None
    world._give_producer_id = give  # type: ignore[method-assign]
    delivery = world.send(b"first")
    assert delivery is not None
    world.run(until=delivery.done)
    assert world.logs[0].values == [b"first"]


def test_producer_id_refused_for_a_record_stops_the_producer() -> None:
    world = World(linger_ms=0)
    world.id_latency_ms = 50
    refusal = error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    world._give_producer_id = lambda: world.core.producer_id_failed(refusal, world.now_ms)  # type: ignore[method-assign]
    world.learn()
    delivery = world.send(b"first")
    assert delivery is not None
    world.run(until=delivery.done)
    assert error_of(delivery) is world.core.accumulator.fatal is refusal


def test_producer_id_is_requested_together_with_the_first_metadata() -> None:
    world = World(linger_ms=0)
    start = world.now_ms
    world.learn()
    delivery = world.send(b"first")
    assert delivery is not None
    world.run(until=delivery.done)
    assert world.now_ms - start == 3 * LATENCY_MS, "one wait for both, and one for the record"


def test_waiting_for_each_record_sends_one_batch_per_record_without_linger() -> None:
    world = World(linger_ms=60_000)
    world.learn()
    for number in range(5):
        delivery = world.send(b"%d" % number)
        assert delivery is not None
        start = world.now_ms
        world.wait_for(delivery)
        world.run(until=delivery.done)
        assert delivery.peek().offset == number
        assert number == 0 or world.now_ms - start == 2 * LATENCY_MS
    assert [len(send.batches) for send in world.sends] == [1] * 5


def test_waited_record_is_sent_after_earlier_records_of_its_partition() -> None:
    world = World()
    world.id_latency_ms = 50
    world.learn()
    early = world.send(b"a")
    assert early is not None
    world.wait_for(early)
    assert not world.sends, "there is no producer id yet"
    world.run(until=early.done)
    world.down.add(0)
    failing = world.send(b"b")
    assert failing is not None
    world.run(for_ms=20)
    after = world.send(b"c")
    assert after is not None
    world.wait_for(after)
    world.down.clear()
    world.run(until=after.done)
    assert world.logs[0].values == [b"a", b"b", b"c"]


def test_batch_lingers_until_a_caller_waits_for_it() -> None:
    world = World(linger_ms=500)
    world.learn()
    start = world.now_ms
    first = world.send(b"a")
    assert first is not None
    world.run(for_ms=100)
    assert not first.done()
    world.run(until=first.done)
    assert 500 <= world.now_ms - start < 520
    second = world.send(b"b")
    assert second is not None
    assert second._batch.wait_with(lambda: None)
    world.core.accumulator.needs_step = True
    start = world.now_ms
    world.run(until=second.done)
    assert world.now_ms - start < 20


def test_full_batch_does_not_linger_and_five_requests_are_in_flight() -> None:
    world = World(linger_ms=60_000, batch_size=100)
    world.learn()
    for i in range(20):
        world.send(b"%060d" % i)
    world.run(until=lambda: len(world.sends) == 1)  # a producer id first; then one alone, which makes it known
    world.run(until=lambda: len(world.logs[0].values) == 1)
    world.run(for_ms=3)
    assert len(world.sends) == 6
    world.run(until=lambda: len(world.logs[0].values) == 19)
    assert world.logs[0].values == [b"%060d" % i for i in range(19)]


def test_key_keeps_its_partition_and_records_without_key_change_it_with_each_batch() -> None:
    world = World(partitions=6)
    world.learn()
    used = set()
    for i in range(40):
        keyed = world.send(b"k%d" % i, partition=None, key=b"21")
        free = world.send(b"f%d" % i, partition=None)
        assert keyed is not None
        assert free is not None
        assert keyed.partition == 0  # murmur2 of "21" is -973932308 in Java, without its sign a multiple of 6
        used.add(free.partition)
        world.run(until=free.done)
    assert len(used) > 3


def test_full_buffer_memory_blocks_senders_until_memory_is_released() -> None:
    world = World(buffer_memory=1000, batch_size=300, linger_ms=1000)
    world.learn()
    sent = 0
    while world.send(b"x" * 79) is not None:
        sent += 1
    assert sent == 11  # of 88 or 89 bytes each, and for the next it takes up to 100
    woken: list[bool] = []
    world.core.accumulator.wait_for_change(lambda: woken.append(True))
    assert isinstance(world.core.accumulator.timeout_error("t", 0), BufferExhausted)
    world.run(until=lambda: bool(woken))
    assert world.now_ms < 1100, "with senders waiting, nothing lingers"
    assert world.send(b"x") is not None


def test_record_larger_than_a_request_is_refused_immediately() -> None:
    world = World(max_request_size=1000)
    world.learn()
    with pytest.raises(MessageTooLarge, match=r"exceeds max.request.size \(1000\)"):
        world.send(b"x" * 1000)
    assert world.core.accumulator.encoder.memory_used == 0
    world = World(buffer_memory=1000)
    world.learn()
    with pytest.raises(MessageTooLarge, match=r"exceeds buffer\.memory"):
        world.send(b"x" * 1000)


def test_metadata_of_an_unknown_topic_is_requested_until_it_exists() -> None:
    world = World()
    world.topic_exists = False
    assert world.send(b"a") is None
    world.run(for_ms=5000)
    assert 4 <= world.metadata_requests < 30
    assert isinstance(world.core.accumulator.timeout_error("t", None), UnknownTopicOrPartition)
    world.topic_exists = True
    world.run(for_ms=2000)
    assert world.send(b"a") is not None


def test_batch_follows_a_moved_leader() -> None:
    world = World(nodes=2)
    world.learn()
    first = world.send(b"a")
    assert first is not None
    world.run(until=first.done)
    world.move_leader(0, 1)
    second = world.send(b"b")
    assert second is not None
    world.run(until=second.done)
    assert second.peek().offset == 1
    assert world.sends[-1].node_id == 1


def test_new_leader_named_in_the_response_is_used_immediately() -> None:
    """KIP-951: the retry waits neither for the backoff nor for metadata."""
    world = World(nodes=2, retry_backoff_ms=1000)
    world.hints = True
    world.learn()
    first = world.send(b"a")
    assert first is not None
    world.run(until=first.done)
    world.move_leader(0, 1)
    second = world.send(b"b")
    assert second is not None
    start, asked = world.now_ms, world.metadata_requests
    world.run(until=second.done)
    assert world.now_ms - start < 30
    assert world.metadata_requests == asked, "the next would only be due after the backoff"


def test_recreated_topic_receives_later_records_in_order() -> None:
    world = World(partitions=3, batch_size=100, retry_backoff_ms=10)
    world.learn()
    first = [world.send(b"%060d" % i, partition=0) for i in range(3)]
    world.run(until=lambda: all(d is not None and d.done() for d in first))
    world.recreate_topic(partitions=2)
    second = [world.send(b"%060d" % i, partition=0) for i in range(3, 13)]
    gone = world.send(b"to a partition that is no more", partition=2)
    world.run(until=lambda: all(d is not None and d.done() for d in second))
    assert world.logs[0].values == [b"%060d" % i for i in range(3, 13)]
    assert [d.peek().offset for d in second if d is not None] == list(range(10))
    assert {world.send(b"", partition=None, key=b"%d" % i).partition for i in range(20)} == {0, 1}  # type: ignore[union-attr]
    assert gone is not None
    world.run(until=gone.done)
    assert isinstance(error_of(gone), DeliveryTimedOut)


def test_records_without_a_key_avoid_partitions_without_a_leader() -> None:
    world = World(partitions=3)
    world.learn()
    world.logs[1].leader = -1
    for partition in range(3):
        delivery = world.send(b"x", partition=partition)
        assert delivery is not None
    world.core.refresh.missing.add("t")
    world.run(for_ms=500)
    for i in range(30):
        free = world.send(b"%d" % i, partition=None)
        assert free is not None
        assert free.partition != 1
        world.run(until=free.done)


def test_delivery_times_out_with_a_typed_error_and_the_next_record_is_written() -> None:
    world = World(delivery_timeout_ms=3000)
    world.learn()
    world.down.add(0)
    first = world.send(b"a")
    assert first is not None
    start = world.now_ms
    world.run(until=first.done)
    assert 3000 <= world.now_ms - start <= 3010
    late = error_of(first)
    assert isinstance(late, DeliveryTimedOut)
    assert late.__cause__ is not None
    assert f"the last error: {late.__cause__}" in str(late)
    assert world.core.accumulator.encoder.memory_used == 0
    world.down.clear()
    second = world.send(b"b")
    assert second is not None
    world.run(until=second.done)
    # The first batch was numbered but never arrived: the broker reports a gap, and the rest gets new numbers.
    assert second.peek().offset == 0
    assert world.logs[0].values == [b"b"]


def test_response_after_the_delivery_timeout_changes_nothing() -> None:
    world = World(delivery_timeout_ms=900)
    world.learn()
    world.delay_answer = 1.0
    first = world.send(b"a")
    assert first is not None
    world.run(until=first.done)
    world.delay_answer = 0.0
    second = world.send(b"b")
    assert second is not None
    world.run(until=second.done)
    world.run(for_ms=5000)
    assert second.peek().offset == world.logs[0].values.index(b"b")
    assert isinstance(error_of(first), DeliveryTimedOut)


def test_late_request_is_not_written_twice_after_the_previous_batch_failed() -> None:
    world = World(delivery_timeout_ms=1300, retry_backoff_ms=50, max_in_flight=5)
    world.learn()
    known = world.send(b"known")
    assert known is not None
    world.run(until=known.done)
    world.delay_answer, world.arrivals_ms = 1.0, [1385, 1095]
    first = world.send(b"first")
    assert first is not None
    world.run(for_ms=300)
    second = world.send(b"second")
    world.run(for_ms=100)
    world.delay_answer, world.lose_request = 0.0, 1.0
    world.run(until=first.done)
    assert isinstance(error_of(first), DeliveryTimedOut)
    world.lose_request = 0.0
    assert second is not None
    world.run(until=second.done)
    world.run(for_ms=3000)
    assert world.logs[0].values == [b"known", b"first", b"second"]
    assert second.peek().offset == 2


def test_refused_batch_does_not_stop_later_batches() -> None:
    world = World(batch_size=100)
    world.learn()
    world.refuse = {ErrorCode.INVALID_RECORD: 1.0}
    first = world.send(b"x" * 60)
    rest = [world.send(b"%060d" % i) for i in range(8)]
    assert first is not None
    world.run(until=first.done)
    world.refuse = {}
    world.run(until=lambda: all(d is not None and d.done() for d in rest))
    assert isinstance(error_of(first), InvalidRecord)
    written = [d for d in rest if error_of(d) is None]
    assert len(written) >= 4
    assert len(world.logs[0].values) == len(written)


def test_record_errors_name_only_the_invalid_records() -> None:
    world = World()
    world.learn()
    deliveries = [world.send(b"%d" % i) for i in range(3)]
    world.run(until=lambda: bool(world.sends))
    outcome = Outcome(ErrorCode.INVALID_RECORD, record_errors=((1, "no key"),))
    world.perform(world.core.responded(world.sends[0].request_id, {("t", 0): outcome}, 0, world.now_ms))
    texts = [str(error_of(delivery)) for delivery in deliveries]
    assert texts[1] == "no key"
    assert "Another record" in texts[0]
    assert "Another record" in texts[2]


def test_lost_connection_fails_the_record_without_retries() -> None:
    world = World(retries=0, idempotent=False)
    world.learn()
    world.lose_request = 1.0
    delivery = world.send(b"a")
    assert delivery is not None
    world.run(until=delivery.done)
    error = error_of(delivery)
    assert isinstance(error, ConnectionLost)
    assert error.retriable


def test_record_with_acks_0_is_done_when_it_is_sent() -> None:
    world = World(acks=0, idempotent=False)
    world.learn()
    delivery = world.send(b"a")
    assert delivery is not None
    world.run(until=delivery.done)
    assert delivery.peek().offset == -1


def test_nothing_is_sent_to_a_broker_during_its_throttle_time() -> None:
    world = World()
    world.learn()
    world.send(b"a")
    world.run(until=lambda: bool(world.sends))
    world.perform(world.core.responded(world.sends[0].request_id, {("t", 0): Outcome(0, 0)}, 700, world.now_ms))
    world.clock.clear()
    start = world.now_ms
    world.send(b"b")
    world.run(until=lambda: len(world.sends) == 2)
    assert world.now_ms - start >= 700


def test_stop_fails_remaining_records_and_later_appends() -> None:
    world = World()
    world.learn()
    world.down.add(0)
    delivery = world.send(b"a")
    world.run(for_ms=500)
    world.perform(world.core.stop(Closed("closed")))
    assert isinstance(error_of(delivery), Closed)
    world.run(for_ms=5000)
    with pytest.raises(Closed):
        world.send(b"b")


def test_exhausted_epoch_requests_a_new_producer_id() -> None:
    world = World()
    world.learn()
    first = world.send(b"a")
    assert first is not None
    world.run(until=first.done)
    queue = first._batch.queue
    queue.epoch = 0x7FFF
    queue.renumber = True
    second = world.send(b"b")
    assert second is not None
    world.run(until=second.done)
    assert second.peek().offset == 1
    assert len(world.logs[0].producers) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_are_written_once_in_order_despite_faults(seed: int) -> None:
    """Lost requests and responses, late arrivals, moving leaders and refusals at the same time."""
    world = World(seed, partitions=3, nodes=3, batch_size=200, linger_ms=2, retry_backoff_ms=10)
    world.learn()
    random = world.random
    world.lose_request, world.lose_answer, world.delay_answer = (random.random() * 0.2 for _ in range(3))
    world.refuse = {ErrorCode.NOT_ENOUGH_REPLICAS: 0.1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: 0.0}
    deliveries: list[tuple[bytes, Delivery]] = []
    for i in range(400):
        value = b"%05d-" % i + b"x" * random.randrange(60)
        delivery = world.send(value, partition=random.randrange(3))
        assert delivery is not None
        deliveries.append((value, delivery))
        if random.random() < 0.2:
            world.wait_for(delivery)
        if random.random() < 0.3:
            world.run(for_ms=random.randrange(1, 30))
        if random.random() < 0.03:
            world.move_leader(random.randrange(3), random.randrange(3))
    world.run(until=lambda: all(d.done() for _, d in deliveries))
    world.run(for_ms=10_000)
    for partition, log in world.logs.items():
        expected = [value for value, d in deliveries if d.partition == partition]
        assert log.values == expected, f"seed {seed}: partition {partition}"
    for value, delivery in deliveries:
        assert world.logs[delivery.partition].values[delivery.peek().offset] == value


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_are_written_once_in_order_despite_timeouts_and_refusals(seed: int) -> None:
    """As above, with delivery timeouts and non-retriable errors: there are gaps, but no record is written twice.

    Requests of a lost connection arrive within two seconds, or never (see `batch`).
    """
    world = World(
        seed, partitions=2, nodes=2, batch_size=200, linger_ms=2, retry_backoff_ms=10, delivery_timeout_ms=1500
    )
    world.latest_arrival_ms = 2900
    world.learn()
    random = world.random
    world.lose_request, world.lose_answer, world.delay_answer = (random.random() * 0.4 for _ in range(3))
    world.refuse = {ErrorCode.NOT_ENOUGH_REPLICAS: 0.2, ErrorCode.INVALID_RECORD: 0.05}
    deliveries: list[tuple[bytes, Delivery]] = []
    for i in range(300):
        value = b"%05d-" % i + b"x" * random.randrange(60)
        delivery = world.send(value, partition=random.randrange(2))
        assert delivery is not None
        deliveries.append((value, delivery))
        if random.random() < 0.2:
            world.wait_for(delivery)
        if random.random() < 0.4:
            world.run(for_ms=random.randrange(1, 200))
        if random.random() < 0.02:
            world.move_leader(random.randrange(2), random.randrange(2))
    world.lose_request = world.lose_answer = world.delay_answer = 0.0
    world.refuse = {}
    world.run(until=lambda: all(d.done() for _, d in deliveries))
    world.run(for_ms=10_000)
    last = world.send(b"after all that", partition=0)
    assert last is not None
    world.run(until=last.done)
    assert error_of(last) is None
    for partition, log in world.logs.items():
        assert len(log.values) == len(set(log.values)), f"seed {seed}: doubled in {partition}"
        assert log.values == sorted(log.values, key=lambda v: v or b""), f"seed {seed}: out of order in {partition}"
    assert any(error_of(d) is None for _, d in deliveries)
    for value, delivery in deliveries:
        if error_of(delivery) is None:
            metadata = delivery.peek()
            assert world.logs[metadata.partition].values[metadata.offset] == value
    assert world.core.accumulator.encoder.memory_used == 0


def test_partition_that_disappears_and_returns_keeps_its_queue() -> None:
    """A second queue would start the same sequence numbers, and the broker would take its batches for duplicates."""
    world = World(partitions=2, linger_ms=0)
    world.learn()
    world.move_leader(1, -1)
    world.perform(world._answer_metadata())
    waits = world.send(b"waits", partition=1)
    world.run(for_ms=100)
    world.recreate_topic(partitions=1)
    world.perform(world._answer_metadata())
    world.recreate_topic(partitions=2)
    world.id_now = world.id_seen
    world.perform(world._answer_metadata())
    later = world.send(b"later", partition=1)
    world.run(until=lambda: bool(waits and waits.done() and later and later.done()))
    assert world.logs[1].values == [b"waits", b"later"]


def test_response_of_a_deleted_topic_does_not_count_for_the_recreated_one() -> None:
    """A broker accepts any first sequence number of an unknown producer, so several batches could be reordered."""
    world = World(linger_ms=0)
    world.learn()
    world.run(for_ms=100)
    sent = world.send(b"to the old one")
    assert sent is not None
    world.run(for_ms=LATENCY_MS)
    assert world.logs[0].values == [b"to the old one"]
    world.recreate_topic()
    world.perform(world._answer_metadata())
    assert not sent.done()
    world.run(until=sent.done)
    queue = sent._batch.queue
    assert not queue.is_known  # type: ignore[attr-defined,unused-ignore]
