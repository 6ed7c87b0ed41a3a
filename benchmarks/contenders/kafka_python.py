"""kafka-python: plain Python."""

from __future__ import annotations

import time

STARTED = time.process_time()

from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]  # noqa: E402

from benchmarks.contenders.task import WINDOW, Race, Task, run  # noqa: E402


def send(task: Task) -> int:
    """A call for each record; every future is looked at."""
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True)
    value, done = task.value, 0
    before: list[object] = []
    while done < task.count:
        window = [producer.send(task.topic, value) for _ in range(WINDOW)]
        for future in before:
            future.get(60)  # type: ignore[attr-defined]
        done += WINDOW
        before = window
    for future in before:
        future.get(60)  # type: ignore[attr-defined]
    producer.close()
    return done


def poll(task: Task) -> int:
    """Records one by one, key and value read."""
    consumer = KafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    got = size = 0
    deadline = time.monotonic() + 120
    while got < task.count and time.monotonic() < deadline:
        for records in consumer.poll(1000).values():
            for record in records:
                size += len(record.key or b"") + len(record.value or b"")
            got += len(records)
    consumer.close()
    return got


def single(task: Task) -> list[float]:
    """One record at a time, each waited for."""
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, acks=1, enable_idempotence=False)
    value, times = task.value, []
    for number in range(task.count + 500):
        start = time.perf_counter()
        producer.send(task.topic, value).get(30)
        if number >= 500:
            times.append(time.perf_counter() - start)
    producer.close()
    return times


def cold(task: Task) -> int:
    """The first record from a cold interpreter."""
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True)
    producer.send(task.topic, task.value).get(30)
    producer.close()
    return 1


RACES: dict[str, Race] = {"send": send, "poll": poll, "single": single, "cold": cold, "memory": poll}

if __name__ == "__main__":
    run(RACES, STARTED)
