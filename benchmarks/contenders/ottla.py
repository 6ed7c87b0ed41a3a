"""Ottla's own clients."""

from __future__ import annotations

import time
from typing import Any

STARTED = time.process_time()

from benchmarks.contenders.task import WINDOW, Race, Task, run  # noqa: E402
from ottla.clients import Consumer, Delivery, Producer  # noqa: E402


def _producer(task: Task, **settings: Any) -> Producer:
    return Producer({"compression.type": task.compression}, bootstrap_servers=task.bootstrap, **settings)


def _consumer(task: Task) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=task.bootstrap, group_id=task.group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.subscribe([task.topic])
    return consumer


def send(task: Task) -> int:
    """A call for each record; every future is asked for its error."""
    value, done, failed = task.value, 0, 0
    with _producer(task) as producer:
        before: list[Delivery] = []
        while done < task.count:
            window = [producer.send(task.topic, value) for _ in range(WINDOW)]
            failed += sum(future.exception() is not None for future in before)
            done += WINDOW
            before = window
        failed += sum(future.exception() is not None for future in before)
    return done - failed


TABLES: list[Any] = []
ROWS = 100_000


def make_table(task: Task) -> None:
    """The table that `send_batch` sends again and again."""
    import pyarrow as pa

    columns = {"value": pa.array([task.value] * ROWS, pa.binary())}
    if task.keyed:
        columns["key"] = pa.array([b"key-%08d" % number for number in range(ROWS)], pa.binary())
    TABLES.append(pa.table(columns))


def send_batch(task: Task) -> int:
    """A table of a hundred thousand rows, one more while the last is on its way."""
    done, before = 0, None
    with _producer(task) as producer:
        while done < task.count:
            delivery = producer.send_batch(task.topic, TABLES[0])
            if before is not None:
                before.result(60)
            before = delivery
            done += ROWS
        if before is not None:
            before.result(60)
    return done


def poll(task: Task) -> int:
    """Records one by one, key and value read."""
    got = size = 0
    with _consumer(task) as consumer:
        deadline = time.monotonic() + 120
        while got < task.count and time.monotonic() < deadline:
            for record in consumer.poll(1.0):
                if record.key is not None:
                    size += len(record.key)
                if record.value is not None:
                    size += len(record.value)
                got += 1
    return got


def poll_arrow(task: Task) -> int:
    """Arrow batches, key and value columns touched."""
    import pyarrow.compute as pc

    got = size = 0
    with _consumer(task) as consumer:
        deadline = time.monotonic() + 120
        while got < task.count and time.monotonic() < deadline:
            batch = consumer.poll_arrow(1.0)
            if batch.num_rows:
                size += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
                got += batch.num_rows
    return got


def single(task: Task) -> list[float]:
    """One record at a time, each waited for."""
    value = task.value
    times = []
    with _producer(task, acks=1, enable_idempotence=False) as producer:
        for number in range(task.count + 500):
            start = time.perf_counter()
            producer.send(task.topic, value).result(30)
            if number >= 500:
                times.append(time.perf_counter() - start)
    return times


def cold(task: Task) -> int:
    """The first record from a cold interpreter."""
    with _producer(task) as producer:
        producer.send(task.topic, task.value).result(30)
    return 1


RACES: dict[str, Race] = {
    "send": send, "send-batch": send_batch, "poll": poll, "poll-arrow": poll_arrow, "single": single, "cold": cold,
    "memory": poll,
}  # fmt: skip

if __name__ == "__main__":
    run(RACES, STARTED, {"send-batch": make_table})
