"""Batches that are too large for their topic (KIP-126) against real brokers."""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pyarrow as pa
import pytest

from ottla.clients import AsyncProducer, Producer
from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer._encoder import Delivery
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S
from .test_ottla_producer import read_back

LIMIT = 10_000


def values(count: int) -> list[bytes]:
    """Values that do not compress well."""
    random = Random(5)
    return [b"%06d" % i + random.randbytes(random.randrange(300)) for i in range(count)]


@pytest.mark.both
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_batches_are_split_and_every_future_finds_its_record(
    broker: RunningBroker, make_topic: MakeTopic, codec: str, idempotent: bool
) -> None:
    topic = make_topic(2, max_message_bytes=LIMIT)
    sent = values(4000)
    called: list[Delivery] = []
    settings = {"enable.idempotence": idempotent, "compression.type": codec, "linger.ms": 20, "batch.size": 60_000}
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        deliveries = [
            producer.send(topic, value, b"k" if i % 3 else None, headers={"n": b"%d" % i}, partition=i % 2,
                          timestamp_ms=1000 + i, callback=called.append)
            for i, value in enumerate(sent)
        ]  # fmt: skip
        metadata = [delivery.result(WAIT_S) for delivery in deliveries]
        assert producer.flush(WAIT_S) == 0
    assert len(called) == len(sent)
    found = read_back(broker.bootstrap, topic, 2, len(sent))
    for i, (value, where) in enumerate(zip(sent, metadata, strict=True)):
        offset, record = found[i % 2][where.offset]
        assert (offset, record.value, record.timestamp) == (where.offset, value, 1000 + i)
        assert record.headers == [("n", b"%d" % i)]
    if idempotent:
        for partition in (0, 1):
            assert [r.value for _, r in found[partition]] == sent[partition::2]
            own = [d for d in called if d.partition == partition]
            assert [d.peek().offset for d in own] == list(range(len(sent) // 2))


@pytest.mark.both
def test_only_the_too_large_record_fails(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1, max_message_bytes=LIMIT)
    sent = values(500)
    sent[200] = b"x" * (LIMIT + 1)
    with Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50}) as producer:
        deliveries = [producer.send(topic, value) for value in sent]
        with pytest.raises(MessageTooLarge, match=rf"{LIMIT + 1 + 61 + 11} bytes.*max\.message\.bytes"):
            deliveries[200].result(WAIT_S)
        assert [d.exception(WAIT_S) for d in deliveries if d is not deliveries[200]] == [None] * 499
    del sent[200]
    assert [record.value for _, record in read_back(broker.bootstrap, topic, 1, 499)[0]] == sent


@pytest.mark.both
def test_rows_of_a_table_are_split(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1, max_message_bytes=LIMIT)
    sent = values(2000)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        ranges = producer.send_batch(topic, pa.table({"value": sent})).result(WAIT_S)
    assert [row.first_offset for row in ranges] == [sum(r.records for r in ranges[:i]) for i in range(len(ranges))]
    assert sum(row.records for row in ranges) == len(sent)
    assert [record.value for _, record in read_back(broker.bootstrap, topic, 1, len(sent))[0]] == sent


@pytest.mark.both
def test_split_batches_wake_waiting_threads_and_tasks(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1, max_message_bytes=400)
    offsets: list[int] = []

    with Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1}) as producer:

        def work() -> None:
            for _ in range(10):
                group = [producer.send(topic, b"x" * 100) for _ in range(10)]
                offsets.extend(delivery.result(WAIT_S).offset for delivery in reversed(group))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert sorted(offsets) == list(range(400))

    async def story() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap}) as producer:
            deliveries = [await producer.send(topic, b"x" * 100) for _ in range(20)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(400, 420))
            assert await producer.flush(WAIT_S) == 0

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
