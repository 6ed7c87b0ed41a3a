"""The races that show whether the length of a log matters: its bytes, and the number of its segments."""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import segments
from benchmarks.brokers import Broker
from benchmarks.wire import Figures, fetch_frame, list_offsets_frame, new_topic, produce_frame, receive
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.protocol.messages.produce import ProduceResponse

# Topics of these sizes in one broker take turns, so that whatever the machine does, it does to all of them.
SIZES_GB = (0, 1, 50)
BLOCKS, ROUND_TRIPS = 8, 400
LOOKUPS = 1500
SEGMENTS = int(os.environ.get("OTTLA_BENCH_SEGMENTS", "10000"))


def flat(broker: Broker, scale: float) -> Figures:
    """p99 of one record produced and read back, in turn at the end of an empty log, of 1 GB and of 50 GB (sparse)"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with broker.another(home) as first:
            topics = {size: new_topic(first, 1) for size in SIZES_GB}
            first.stop_in_order()
        for size, topic in topics.items():
            if size:
                segments.sparse(first.data / f"{topic}-0", size)
        with broker.another(home) as second:
            figures = _round_trips(second, topics, int(ROUND_TRIPS * max(scale, 0.25)))
            os.kill(second.pid, signal.SIGKILL)
            return figures


def _round_trips(broker: Broker, topics: dict[int, str], count: int) -> Figures:
    """Medians over blocks of each block's p99: a hiccup of the machine does not decide."""
    kinds = ("produce", "fetch")
    p99: dict[tuple[str, int], list[float]] = {(kind, size): [] for kind in kinds for size in topics}
    with socket.create_connection(broker.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for block in range(BLOCKS + 1):
            times: dict[tuple[str, int], list[float]] = {key: [] for key in p99}
            for _ in range(count):
                for size, topic in topics.items():
                    produced, fetched = _round_trip(connection, topic)
                    times["produce", size].append(produced)
                    times["fetch", size].append(fetched)
            if block:  # the first one warms up
                for key, row in times.items():
                    p99[key].append(statistics.quantiles(row, n=100)[98] * 1e3)
    figures: Figures = {}
    for kind in kinds:
        empty, *others = (statistics.median(p99[kind, size]) for size in topics)
        figures[f"{kind} p99 ms, empty"] = empty
        for size, value in zip(list(topics)[1:], others, strict=True):
            figures[f"{kind} p99 ms, {size} GB"] = value
            figures[f"{kind} p99, {size} GB over empty"] = value / empty
    return figures


def _round_trip(connection: socket.socket, topic: str) -> tuple[float, float]:
    frame = produce_frame(topic, 1)
    start = time.perf_counter()
    connection.sendall(frame)
    answer = ProduceResponse.decode(memoryview(receive(connection))[5:], 9)
    produced = time.perf_counter() - start
    partition = answer.responses[0].partition_responses[0]
    if partition.error_code:
        raise RuntimeError(f"error {partition.error_code} for a record")
    asked = fetch_frame(topic, partition.base_offset)
    start = time.perf_counter()
    connection.sendall(asked)
    receive(connection)
    return produced, time.perf_counter() - start


def many_segments(broker: Broker, scale: float) -> Figures:
    """one partition of many small segments: a start with them, lookups of random offsets and timestamps"""
    count = int(SEGMENTS * scale)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with broker.another(home) as first:
            topic = new_topic(first, 1)
            first.stop_in_order()
        begin, end = segments.many(first.data / f"{topic}-0", count)
        with broker.another(home) as second:
            figures = _lookups(second, topic, begin, end)
            os.kill(second.pid, signal.SIGKILL)
            return figures


def _lookups(broker: Broker, topic: str, begin: int, end: int) -> Figures:
    chance = random.Random(7)
    with socket.create_connection(broker.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _read(connection, topic, end - 1)
        figures = {"seconds to start": broker.age_seconds(), "resident MB after the start": broker.resident_mb()}
        figures["ms of the first look for a timestamp"] = _find(connection, topic, begin + end - 1, end - 1) * 1e3
        middles = [chance.randrange(end) for _ in range(LOOKUPS)]
        found = [_find(connection, topic, begin + offset, offset) for offset in middles]
        figures["look for a timestamp p99 ms"] = statistics.quantiles(found, n=100)[98] * 1e3
        read = [_read(connection, topic, offset) for offset in middles]
        figures["fetch of any offset p99 ms"] = statistics.quantiles(read, n=100)[98] * 1e3
        figures["resident MB after lookups"] = broker.resident_mb()
    return figures


def _find(connection: socket.socket, topic: str, timestamp: int, expected: int) -> float:
    frame = list_offsets_frame(topic, timestamp)
    start = time.perf_counter()
    connection.sendall(frame)
    answer = receive(connection)
    seconds = time.perf_counter() - start
    offset = ListOffsetsResponse.decode(memoryview(answer)[5:], 7).topics[0].partitions[0].offset
    if offset != expected:
        raise RuntimeError(f"offset {offset} for the timestamp of {expected}")
    return seconds


def _read(connection: socket.socket, topic: str, offset: int) -> float:
    frame = fetch_frame(topic, offset)
    start = time.perf_counter()
    connection.sendall(frame)
    answer = receive(connection)
    seconds = time.perf_counter() - start
    records = FetchResponse.decode(memoryview(answer)[5:], 12).responses[0].partitions[0].records
    if not records or int.from_bytes(records[:8], "big") != offset:
        raise RuntimeError(f"no batch of offset {offset}")
    return seconds
