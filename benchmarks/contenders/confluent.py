"""confluent-kafka: librdkafka under a C extension."""

from __future__ import annotations

import time
from typing import Any

STARTED = time.process_time()

from confluent_kafka import Consumer, KafkaError, Message, Producer  # noqa: E402

from benchmarks.contenders.task import Race, Task, run  # noqa: E402


def _consumer(task: Task) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([task.topic])
    return consumer


def send(task: Task) -> int:
    """A call for each record; the delivery callback looks at every outcome."""
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "compression.type": task.compression,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
    )
    failed, value, topic = [], task.value, task.topic

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(task.count):
        while True:
            try:
                producer.produce(topic, value, key=b"key-%08d" % number if task.keyed else None, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    return task.count - left - len(failed)


MESSAGES: list[dict[str, Any]] = []
MANY = 10_000


def make_messages(task: Task) -> None:
    """The messages that `send_many` produces again and again."""
    MESSAGES.extend(
        {"value": task.value, "key": b"key-%08d" % number if task.keyed else None} for number in range(MANY)
    )


def send_many(task: Task) -> int:
    """Ten thousand messages a call; the delivery callback looks at every outcome."""
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "compression.type": task.compression,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
    )
    failed, done = [], 0

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    while done < task.count:
        left = MESSAGES
        while left:
            if producer.produce_batch(task.topic, left, on_delivery=delivered) == len(left):
                break
            # The queue is full: what was not taken is marked.
            left = [message for message in left if message.pop("_error", None) is not None]
            producer.poll(0.05)
        done += MANY
        producer.poll(0)
    left_over = producer.flush(60)
    return done - left_over - len(failed)


def poll(task: Task) -> int:
    """Messages one by one, key and value read."""
    consumer, got, size = _consumer(task), 0, 0
    deadline = time.monotonic() + 120
    while got < task.count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        key, value = message.key(), message.value()
        size += len(key or b"") + len(value or b"")
        got += 1
    consumer.close()
    return got


def poll_many(task: Task) -> int:
    """Messages by the hundred, key and value read."""
    consumer, got, size = _consumer(task), 0, 0
    deadline = time.monotonic() + 120
    while got < task.count and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            key, value = message.key(), message.value()
            size += len(key or b"") + len(value or b"")
            got += 1
    consumer.close()
    return got


def poll_arrow(task: Task) -> int:
    """Messages by the thousand into an Arrow table of the columns that Ottla's has."""
    import pyarrow as pa

    consumer, got = _consumer(task), 0
    deadline = time.monotonic() + 120
    while got < task.count and time.monotonic() < deadline:
        messages = consumer.consume(10_000, 1.0)
        columns: dict[str, Any] = {
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "topic": pa.array([message.topic() for message in messages], pa.string()),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([len(message.headers() or ()) for message in messages], pa.int32()),
        }
        got += pa.table(columns).num_rows
    consumer.close()
    return got


def single(task: Task) -> list[float]:
    """One record at a time, each waited for."""
    producer = Producer({"bootstrap.servers": task.bootstrap, "acks": 1, "linger.ms": 0})
    value, times = task.value, []
    for number in range(task.count + 500):
        start = time.perf_counter()
        producer.produce(task.topic, value)
        if producer.flush(30):
            raise SystemExit("a record was not acknowledged")
        if number >= 500:
            times.append(time.perf_counter() - start)
    return times


def cold(task: Task) -> int:
    """The first record from a cold interpreter."""
    producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True})
    producer.produce(task.topic, task.value)
    return 1 - producer.flush(30)


RACES: dict[str, Race] = {
    "send": send, "send-batch": send, "send-many": send_many, "poll": poll, "poll-many": poll_many,
    "poll-arrow": poll_arrow, "single": single, "cold": cold, "memory": poll,
}  # fmt: skip

if __name__ == "__main__":
    run(RACES, STARTED, {"send-many": make_messages})
