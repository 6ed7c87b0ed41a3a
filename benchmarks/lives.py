"""The races that need a broker of their own: from its start, and as it grows. They start the one given once more."""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, new_topic, produce_frame, receive
from ottla.protocol.messages.produce import ProduceResponse

TOPICS, PARTITIONS_EACH = 10, 100


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
