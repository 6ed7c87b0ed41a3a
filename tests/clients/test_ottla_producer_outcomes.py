"""Outcomes of records: callbacks, futures, purged and dropped records; and partitioners."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as Librdkafka

from ottla.clients import AsyncDelivery, AsyncProducer, ClientError, InvalidTopic, MessageTooLarge, Producer, Purged
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import WAIT_S, wait_until

LIBRDKAFKA = ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]


@pytest.mark.parametrize("_round", range(5))
def test_callbacks_have_run_when_flush_returns(broker: RunningBroker, make_topic: MakeTopic, _round: int) -> None:
    topic = make_topic(3)
    seen = 0

    def count(_: object) -> None:
        nonlocal seen
        seen += 1

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for _ in range(20_000):
            producer.send(topic, b"x" * 10, callback=count)
        assert producer.flush(WAIT_S) == 0
        assert seen == 20_000


def test_async_delivery_has_result_and_exception_as_a_future_does(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes=1_000)
    seen: list[tuple[str, Exception | None]] = []

    def plain(delivery: AsyncDelivery) -> None:
        seen.append(("plain", delivery.exception()))

    async def coroutine(delivery: AsyncDelivery) -> None:
        await asyncio.sleep(0)
        assert delivery.result().offset == 0
        seen.append(("coroutine", delivery.exception()))

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
            pending = await producer.send(topic, b"v", callback=coroutine)
            for look in (pending.result, pending.exception):
                with pytest.raises(asyncio.InvalidStateError, match="await its delivery"):
                    look()
            metadata = await pending
            assert pending.result() == metadata
            assert pending.exception() is None
            failed = await producer.send(topic, b"x" * 10_000, callback=plain)
            with pytest.raises(MessageTooLarge) as caught:
                await failed
            assert failed.exception() is caught.value
            with pytest.raises(MessageTooLarge):
                failed.result()

    asyncio.run(run())
    assert [(name, type(error)) for name, error in seen] == [("coroutine", type(None)), ("plain", MessageTooLarge)]


def test_callback_has_run_when_result_returns_and_when_the_producer_is_closed(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    seen: list[str] = []

    def slow(name: str) -> Any:
        def callback(delivery: Any) -> None:
            assert delivery.done()
            time.sleep(0.05)
            seen.append(f"{name} {delivery.result().offset}")

        return callback

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        delivery = producer.send(topic, b"1", callback=slow("first"))
        delivery.result(WAIT_S)
        assert seen == ["first 0"]
        producer.send(topic, b"2", callback=slow("second"))
    assert seen == ["first 0", "second 1"]


def test_add_done_callback_runs_once_whether_added_before_or_after_the_outcome(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    seen: list[int] = []
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=50) as producer:
        delivery = producer.send(topic, b"1")
        delivery.add_done_callback(lambda done: seen.append(done.result().offset))
        delivery.result(WAIT_S)
        assert seen == [0]
        delivery.add_done_callback(lambda done: seen.append(done.result().offset + 100))
        assert seen == [0, 100]


def test_coroutine_callbacks_have_ended_when_flush_returns(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    dead_letters = make_topic()
    seen: list[int] = []

    async def story() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap) as producer:

            async def forward(delivery: Any) -> None:
                offset = (await delivery).offset
                await asyncio.sleep(0.01)
                await (await producer.send(dead_letters, b"%d" % offset))
                seen.append(offset)
                with pytest.raises(ClientError, match="callback must not flush"):
                    await producer.flush()

            for _ in range(20):
                await producer.send(topic, b"x", callback=forward)
            assert await producer.flush(WAIT_S) == 0
            assert seen == list(range(20))

            async def late(delivery: Any) -> None:
                await asyncio.sleep(0.05)
                seen.append(delivery.peek().offset)

            await producer.send(topic, b"x", callback=late)
        assert seen == list(range(21))

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("name", LIBRDKAFKA)
def test_named_partitioners_place_keys_as_librdkafka(broker: RunningBroker, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(7)
    keys = [b"key-%d" % i for i in range(300)] + [b"\xff" * n for n in range(1, 40)]
    if name in ("consistent", "murmur2", "fnv1a"):
        keys.append(b"")
    theirs: dict[bytes, int] = {}

    def note(error: object, message: Message) -> None:
        assert error is None
        theirs[message.key() or b""] = message.partition()

    librdkafka = Librdkafka({"bootstrap.servers": broker.bootstrap, "partitioner": name, "linger.ms": 1})
    for key in keys:
        librdkafka.produce(
            topic,
            b"v",
            key=key,
            on_delivery=lambda error, message: theirs.update({message.key() or b"": message.partition()}),
        )
    assert librdkafka.flush(WAIT_S) == 0
    with Producer(bootstrap_servers=broker.bootstrap, partitioner=name) as producer:
        ours = {key: producer.send(topic, b"v", key=key) for key in keys}
        producer.flush(WAIT_S)
        assert {key: delivery.partition for key, delivery in ours.items()} == theirs
        table = pa.table({"key": pa.array(keys, pa.binary()), "value": [b"v"] * len(keys)})
        counts = {r.partition: r.records for r in producer.send_batch(topic, table).result(WAIT_S)}
        assert counts == {p: list(theirs.values()).count(p) for p in set(theirs.values())}


def test_random_partitioner_spreads_one_key(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with Producer(bootstrap_servers=broker.bootstrap, partitioner="random", batch_size=200) as producer:
        deliveries = [producer.send(topic, b"x" * 50, key=b"same") for _ in range(400)]
        producer.flush(WAIT_S)
        assert {delivery.partition for delivery in deliveries} == {0, 1, 2, 3}


def test_partitioner_out_of_range_raises_immediately(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=broker.bootstrap, partitioner=lambda *_: 7) as producer:
        with pytest.raises(ValueError, match=r"returned 7 for .* partitions 0 to 1"):
            producer.send(topic, b"x")
        with pytest.raises(ValueError, match="returned 7"):
            producer.send_batch(topic, pa.table({"value": ["a"]}))
    with (
        Producer(bootstrap_servers=broker.bootstrap, partitioner=lambda *_: "1") as producer,
        pytest.raises(TypeError, match="whole number"),
    ):
        producer.send(topic, b"x")


def test_empty_topic_name_raises_immediately(broker: RunningBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer, pytest.raises(InvalidTopic, match="empty"):
        producer.send("", b"x")


def test_timestamps_are_whole_numbers_or_datetimes(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    moment = datetime(2013, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    ms = 1_357_095_845_678
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for given in (moment, np.int64(ms), ms):
            assert producer.send(topic, b"x", timestamp_ms=given).result(WAIT_S).timestamp == ms
        for wrong in (1.5, float(ms), True, "now", -1, 1 << 63):
            with pytest.raises(ValueError, match="timestamp"):
                producer.send(topic, b"x", timestamp_ms=wrong)  # type: ignore[arg-type]


def test_first_record_to_each_new_topic_does_not_wait_for_a_backoff(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topics = [make_topic() for _ in range(30)]
    with Producer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=20_000, retry_backoff_max_ms=20_000) as producer:
        for topic in topics:  # with a backoff between metadata requests this would take ten minutes
            producer.send(topic, b"x").result(WAIT_S)


def test_pandas_data_frames_are_sent_without_their_index(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    frame = pd.DataFrame({"key": ["a", "b", "c"], "value": ["1", "2", "3"]}, index=[5, 7, 9])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        assert producer.send_batch(topic, frame).result(WAIT_S)[0].records == 3
        with pytest.raises(TypeError, match="__arrow_c_stream__, not list"):
            producer.send_batch(topic, [1, 2])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="needs a key or a value"):
            producer.send_batch(topic, pd.DataFrame({"name": ["a"]}))


def test_purged_records_fail_and_the_next_ones_are_written(tmp_path: Path) -> None:
    with (
        ForkedOttla(tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer,
    ):
        assert [info.leader for info in producer.partitions_for("purged")] == [1]
        waiting = [producer.send("purged", b"%d" % i) for i in range(10)]
        producer.purge()
        for delivery in waiting:
            with pytest.raises(Purged, match="not sent"):
                delivery.result(WAIT_S)
        assert producer.send("purged", b"kept").result(WAIT_S).offset == 0


def test_dropped_producer_delivers_warns_and_leaves_no_thread(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    before = threading.active_count()
    deliveries = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(5):
            producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=100)
            deliveries.append(producer.send(topic, b"%d" % i))
        del producer
        gc.collect()
    assert [str(w.message) for w in caught] == ["unclosed producer with 1 records to send"] * 5
    assert sorted(delivery.result(WAIT_S).offset for delivery in deliveries) == list(range(5))
    wait_until(lambda: threading.active_count() == before, "the threads of the dropped producers end")


def test_async_producer_on_another_loop_raises(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = AsyncProducer(bootstrap_servers=broker.bootstrap)

    async def send() -> None:
        await (await producer.send(topic, b"x"))

    async def close() -> None:
        await producer.close()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(send())
        with pytest.raises(ClientError, match="belongs to the event loop"):
            asyncio.run(send())
        loop.run_until_complete(close())
    finally:
        loop.close()


def test_failure_without_callback_or_result_is_logged_once(
    broker: RunningBroker, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        producer.partitions_for(topic)
        for _ in range(3):
            producer.send(topic, b"x")
            producer.purge()
            producer.flush(WAIT_S)
        gc.collect()
        delivery = producer.send(topic, b"x")
        producer.purge()
        assert isinstance(delivery.exception(WAIT_S), Purged)
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(f"1 records for {topic}-0 were not delivered, and the program did not ask")


def test_records_lost_at_exit_are_reported_in_one_line(broker: RunningBroker, make_topic: MakeTopic) -> None:
    program = (
        "import sys; from ottla.clients import Producer\n"
        "producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60000, delivery_timeout_ms=120000)\n"
        "producer.partitions_for(sys.argv[2])\n"
        "for i in range(3): producer.send(sys.argv[2], b'x')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap, make_topic()],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONWARNINGS": "ignore"}, check=True,
    )  # fmt: skip
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("3 records were not acknowledged when the program ended")
