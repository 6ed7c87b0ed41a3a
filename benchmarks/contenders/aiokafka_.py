"""aiokafka: asyncio, record parsing in Cython."""

from __future__ import annotations

import asyncio
import time

STARTED = time.process_time()

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: E402

from benchmarks.contenders.task import WINDOW, Race, Task, run  # noqa: E402


async def _send(task: Task) -> int:
    value, done = task.value, 0
    async with AIOKafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True) as producer:
        before: list[asyncio.Future[object]] = []
        while done < task.count:
            window = [await producer.send(task.topic, value) for _ in range(WINDOW)]
            for future in before:
                await future
            done += WINDOW
            before = window
        for future in before:
            await future
    return done


async def _poll(task: Task) -> int:
    got = size = 0
    consumer = AIOKafkaConsumer(
        task.topic,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        deadline = time.monotonic() + 120
        while got < task.count and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    size += len(record.key or b"") + len(record.value or b"")
                got += len(records)
    return got


async def _single(task: Task) -> list[float]:
    value, times = task.value, []
    async with AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks=1) as producer:
        for number in range(task.count + 500):
            start = time.perf_counter()
            await producer.send_and_wait(task.topic, value)
            if number >= 500:
                times.append(time.perf_counter() - start)
    return times


async def _cold(task: Task) -> int:
    async with AIOKafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait(task.topic, task.value)
    return 1


RACES: dict[str, Race] = {
    "send": lambda task: asyncio.run(_send(task)),
    "poll": lambda task: asyncio.run(_poll(task)),
    "single": lambda task: asyncio.run(_single(task)),
    "cold": lambda task: asyncio.run(_cold(task)),
    "memory": lambda task: asyncio.run(_poll(task)),
}

if __name__ == "__main__":
    run(RACES, STARTED)
