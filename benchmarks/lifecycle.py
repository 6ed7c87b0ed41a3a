"""The races that need a broker of their own: from its start, and as it grows. They start the given broker once more."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import segments
from benchmarks.brokers import Broker
from benchmarks.filling import drain, fill
from benchmarks.wire import DEADLINE_S, Figures, new_topic, produce_frame, receive
from ottla.protocol.messages.produce import ProduceResponse

TOPICS, PARTITIONS_EACH = 10, 100
# `OTTLA_BENCH_GB=10` is the size that is promised; it takes two minutes for each race and broker.
GIGABYTES = float(os.environ.get("OTTLA_BENCH_GB", "2"))


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


def _until_there(paths: list[Path]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not all(path.exists() for path in paths):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {paths[0]}")
        time.sleep(0.05)


def memory(broker: Broker, scale: float) -> Figures:
    """a fresh broker, 1,000 partitions created in it (10 topics in one request), and 400 MB of 1 KB in and out"""
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
        records = int(400_000 * scale)
        fill(fresh, "topic-0", records, 1000, "1")
        drain(fresh, "topic-0", records)
        figures["resident MB after load"] = fresh.resident_mb()
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
            fresh.stop_in_order()
        with broker.another(home) as second:
            _until_acknowledged(second, frame)
            figures["seconds to start with them"] = second.age_seconds()
            os.kill(second.pid, signal.SIGKILL)
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


def restart(record_bytes: int, records_in_a_batch: int, share: float) -> Callable[[Broker, float], Figures]:
    """The race with records and batches of one size, in `share` of the gigabytes of OTTLA_BENCH_GB."""

    def race(broker: Broker, scale: float) -> Figures:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
            home = Path(directory)
            with broker.another(home) as first:
                frame = produce_frame(new_topic(first, 1), -1)
                topic = new_topic(first, 100)
                logs = [first.data / f"{topic}-{index}" for index in range(100)]
                _until_there([log / "partition.metadata" for log in logs])
                os.kill(first.pid, signal.SIGKILL)
                time.sleep(0.5)
            segments.fill(logs, int(GIGABYTES * share * scale * 1e9), record_bytes, records_in_a_batch)
            os.sync()  # or the disk would be busy with it for the one and not for the other
            with broker.another(home) as second:
                _until_acknowledged(second, frame)
                figures = {"seconds": second.age_seconds(), "broker CPU seconds": second.cpu_seconds()}
                os.kill(second.pid, signal.SIGKILL)  # a clean stop would sync gigabytes without need
                return figures

    batch = f"{records_in_a_batch} records" if records_in_a_batch > 1 else "one record"
    race.__doc__ = (
        f"after kill -9, {GIGABYTES * share:g} GB in 100 partitions, {batch} of {record_bytes} B a batch:"
        " from the start to the first acknowledged record"
    )
    return race
