"""The races that Kafka's own tools run: its Java clients, all in one warm JVM beside the broker."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.peers.kafka import tool

from benchmarks import page_cache
from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, new_topic, passing_topic


def run(name: str, *arguments: object) -> str:
    """Run a Kafka tool to its end; return its output."""
    done = tool(name, *arguments, timeout=DEADLINE_S)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stdout[-500:]}{done.stderr[-1000:]}")
    return done.stdout


def _number(pattern: str, text: str) -> float:
    found = re.findall(pattern, text)
    if not found:
        raise RuntimeError(f"no {pattern} in {text[-500:]}")
    return float(found[-1].replace(",", "."))


def produce_perf(size: int, acks: str, count: int) -> Callable[[Broker, float], Figures]:
    """The race of producer-perf-test with records of one size."""

    def race(broker: Broker, scale: float) -> Figures:
        records = int(count * scale)
        megabytes = records * size / 1e6
        page_cache.touch(broker, megabytes)
        cpu = broker.cpu_seconds()
        with passing_topic(broker, 6) as topic:
            text = produce(broker, topic, records, size, acks, "--print-metrics")
            used = broker.cpu_seconds() - cpu
        requests = _number(r"producer-metrics:request-total:.*: ([0-9.,]+)", text)
        return {
            "MB/s": _number(r"records/sec \(([0-9.,]+) MB/sec\)", text) * 1.048576,
            "MB per broker-CPU-second": megabytes / max(used, 0.01),
            "requests": requests,
            "KB per request": _number(r"producer-metrics:request-size-avg:.*: ([0-9.,]+)", text) / 1e3,
            "broker CPU us per request": used / requests * 1e6,
        }

    race.__doc__ = f"producer-perf-test, records of {size} B, acks={acks}, 6 partitions"
    return race


def produce(broker: Broker, topic: str, records: int, size: int, acks: str, *options: str) -> str:
    """Fill a topic with producer-perf-test; returns what it printed."""
    settings = (f"acks={acks}", f"bootstrap.servers={broker.bootstrap}", "batch.size=262144", "linger.ms=10")
    return run(
        "producer-perf-test",
        "--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1,
        *options, "--producer-props", *settings,
    )  # fmt: skip


def consume_perf(broker: Broker, scale: float) -> Figures:
    """consumer-perf-test, 1 KB records from the page cache, 6 partitions"""
    records = int(600_000 * scale)
    with passing_topic(broker, 6) as topic:
        produce(broker, topic, records, 1000, "1")
        cpu = broker.cpu_seconds()
        text = run(
            "consumer-perf-test", "--topic", topic, "--num-records", records, "--bootstrap-server", broker.bootstrap
        )
        used = broker.cpu_seconds() - cpu
    last = text.strip().splitlines()[-1].split(", ")
    return {
        "MB/s": float(last[8].replace(",", ".")) * 1.048576,
        "MB per broker-CPU-second": records / 1e3 / max(used, 0.01),
    }


def end_to_end(broker: Broker, scale: float) -> Figures:
    """e2e-latency: 100 B records, each read before the next is sent, acks=1"""
    topic, records = new_topic(broker, 1), max(int(5_000 * scale), 2000)
    text = run(
        "e2e-latency",
        "--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", records,
        "--producer-acks", 1, "--record-size", 100,
    )  # fmt: skip
    # Its percentiles are whole milliseconds: 0 is less than one.
    return {
        "average ms": _number(r"Avg latency: ([0-9.,]+) ms", text),
        "p99 ms": _number(r"99th = ([0-9]+)", text),
    }
