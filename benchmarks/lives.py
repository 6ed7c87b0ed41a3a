"""The races that need a broker of their own: from its start, and as it grows. They start the one given once more."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import Broker
from benchmarks.filling import fill
from benchmarks.wire import DEADLINE_S, Figures, fetch_frame, new_topic, produce_frame, receive
from ottla.protocol.messages.produce import ProduceResponse

TOPICS, PARTITIONS_EACH = 10, 100
ROUND_TRIPS = 3000


def start(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - a start has no size
    """from the start of the process, in a formatted directory with one topic, to the first acknowledged record"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with broker.another(home) as first:
            frame = produce_frame(new_topic(first, 1), -1)
            _until_acknowledged(first, frame)
        with broker.another(home) as second:
            _until_acknowledged(second, frame)
            return {"seconds": second.age_seconds(), "broker CPU seconds": second.cpu_seconds()}


def _until_acknowledged(broker: Broker, frame: bytes) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with socket.create_connection(broker.address, 10) as connection:
            connection.sendall(frame)
            answer = ProduceResponse.decode(memoryview(receive(connection))[5:], 9)
        if not answer.responses[0].partition_responses[0].error_code:
            return
        time.sleep(0.005)
    raise RuntimeError(f"{broker.name} acknowledges nothing")


def memory(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of partitions is the point
    """a fresh broker, and 1,000 partitions created in it (10 topics in one request)"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, broker.another(Path(directory)) as fresh:
        time.sleep(1)
        figures = {"resident MB after the start": fresh.resident_mb()}
        admin = AdminClient({"bootstrap.servers": fresh.bootstrap, "log_level": 0})
        begin = time.perf_counter()
        topics = [NewTopic(f"topic-{number}", PARTITIONS_EACH, 1) for number in range(TOPICS)]
        for done in admin.create_topics(topics, operation_timeout=60).values():
            done.result(DEADLINE_S)
        figures["seconds to create 1,000 partitions"] = time.perf_counter() - begin
        time.sleep(1)
        figures["resident MB with 1,000 partitions"] = fresh.resident_mb()
        return figures


def many(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of partitions is the point
    """10,000 partitions created in a fresh broker (100 topics, one after another), and a start with them"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with broker.another(home) as fresh:
            frame = produce_frame(new_topic(fresh, 1), -1)
            admin = AdminClient({"bootstrap.servers": fresh.bootstrap, "log_level": 0})
            begin = time.perf_counter()
            for number in range(100):
                topic = NewTopic(f"topic-{number}", 100, 1)
                for done in admin.create_topics([topic], operation_timeout=60).values():
                    done.result(DEADLINE_S)
            figures = {"seconds to create 10,000 partitions": time.perf_counter() - begin}
            _settle(fresh)
            figures["resident MB with 10,000 partitions"] = fresh.resident_mb()
        with broker.another(home) as second:
            _until_acknowledged(second, frame)
            figures["seconds to start with them"] = second.age_seconds()
            return figures


def _settle(broker: Broker) -> None:
    """Wait until its processor time stands still, or almost."""
    deadline = time.monotonic() + DEADLINE_S
    before = broker.cpu_seconds()
    while time.monotonic() < deadline:
        time.sleep(1)
        now = broker.cpu_seconds()
        if now - before < 0.1:
            return
        before = now


def restart(broker: Broker, scale: float) -> Figures:
    """kill -9 with 2 GB of 1 KB records in 100 partitions; from the start after it to the first acknowledged record"""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with broker.another(home) as first:
            frame = produce_frame(new_topic(first, 1), -1)
            fill(first, new_topic(first, 100), int(2_000_000 * scale), 1000, "1")
            os.kill(first.pid, signal.SIGKILL)
            time.sleep(0.5)
        with broker.another(home) as second:
            _until_acknowledged(second, frame)
            figures = {"seconds": second.age_seconds(), "broker CPU seconds": second.cpu_seconds()}
            os.kill(second.pid, signal.SIGKILL)  # a clean stop would sync gigabytes that nobody needs
            return figures


def flat(broker: Broker, scale: float) -> Figures:
    """p99 of one record produced and read back, in an empty log and behind 2 GB of 1 KB records"""
    topic = new_topic(broker, 1)
    empty = _round_trips(broker, topic)
    fill(broker, topic, int(2_000_000 * scale), 1000, "1")
    time.sleep(2)
    full = _round_trips(broker, topic)
    return {
        "produce p99 ms, empty": empty[0],
        "produce p99 ms, full": full[0],
        "fetch p99 ms, empty": empty[1],
        "fetch p99 ms, full": full[1],
    }


def _round_trips(broker: Broker, topic: str) -> tuple[float, float]:
    frame = produce_frame(topic, 1)
    produced, fetched = [], []
    with socket.create_connection(broker.address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            start = time.perf_counter()
            connection.sendall(frame)
            answer = ProduceResponse.decode(memoryview(receive(connection))[5:], 9)
            produced.append(time.perf_counter() - start)
            asked = fetch_frame(topic, answer.responses[0].partition_responses[0].base_offset)
            start = time.perf_counter()
            connection.sendall(asked)
            receive(connection)
            fetched.append(time.perf_counter() - start)
    p99 = [statistics.quantiles(times, n=100)[98] * 1e3 for times in (produced, fetched)]
    return p99[0], p99[1]
