"""The latency of Produce at the source of a mirror, while the mirror reads and while it is paused, alternating.

The load is one record of 1,000 bytes in each request, acks=all, 200 requests a second over six partitions. The
latency is from the call to the delivery report. The source and the target are Ottla brokers of this machine, so that
a core that the target uses is missing at the source, too.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.ottla_process import OttlaProcess

from benchmarks.mirror.load import PARTITIONS, SIZE, records, start_mirror, until
from ottla.clients.admin import Admin

TOPIC = "latency"
RATE = 200
MIRRORED, PAUSED = "RUNNING", "PAUSED"


def run(rounds: int, seconds: float) -> None:
    """Run the pairs, and print the percentiles."""
    found: dict[str, list[float]] = {MIRRORED: [], PAUSED: []}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-mirror-") as folder,
        OttlaProcess(Path(folder) / "source") as source,
        OttlaProcess(Path(folder) / "target") as target,
    ):
        with Admin(source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        _latencies_ms(source.bootstrap, 1.0)
        for number in range(2 * rounds):
            # Both come first equally often.
            state = (MIRRORED, PAUSED)[(number + number // 2) % 2]
            start_mirror(target.bootstrap, source.bootstrap, TOPIC, state=state)
            if state == MIRRORED:
                until(lambda: records(target.bootstrap, TOPIC) == records(source.bootstrap, TOPIC))
            else:
                time.sleep(1.0)
            found[state] += _latencies_ms(source.bootstrap, seconds)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"produce at the source: {rounds} times {seconds:g} s with a mirror and as often without, alternating; {RATE} "
        f"requests a second with a record of {SIZE} bytes, acks=all, {os.cpu_count()} cores, load {load}"
    )
    for name, part in (("p50", 50), ("p90", 90), ("p99", 99)):
        mirrored, alone = (_percentile(found[state], part) for state in (MIRRORED, PAUSED))
        print(f"{name} ms: mirrored {mirrored:6.2f}   not mirrored {alone:6.2f}   ratio {mirrored / alone:5.2f}")


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


def _latencies_ms(bootstrap: str, seconds: float) -> list[float]:
    """From each call of `produce` to its delivery report."""
    times: list[float] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2})
    value = os.urandom(SIZE)
    count = int(seconds * RATE)
    begun_s = time.monotonic()
    for number in range(count):
        while (wait_s := begun_s + number / RATE - time.monotonic()) > 0:
            producer.poll(wait_s)
        sent_s = time.monotonic()

        def delivered(error: Any, _: Any, sent_s: float = sent_s) -> None:
            assert error is None, error
            times.append((time.monotonic() - sent_s) * 1000)

        producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=delivered)
    if producer.flush(60):
        raise TimeoutError("the source does not acknowledge the records")
    assert len(times) == count, f"{len(times)} of {count}"
    # The connection is opened by the first requests.
    return times[RATE // 4 :]
