"""The cost of metrics: `python -m benchmarks.metrics [--rounds N] [--partitions N]`.

1. Small Produce and Fetch requests through the dispatcher, with and without the measuring dispatch, in blocks that
   alternate within one process. CPU time per request, medians.
2. A scrape of a broker with many partitions: CPU time of all slices together, and of the longest slice.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.broker.harness import BrokerHarness, batch, open_harness, produce_request

from ottla.broker.metrics.collect import Sources, collect
from ottla.broker.metrics.exposition import PROMETHEUS
from ottla.broker.metrics.lag_rows import GroupLag
from ottla.broker.metrics.loop_delay import LoopDelay
from ottla.broker.metrics.requests import RequestTimes
from ottla.protocol import frames
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BLOCK = 200


class Stopped:
    """The event loop of `LoopDelay`, which takes no samples here."""

    def time(self) -> float:
        """Return a fixed time."""
        return 0.0


def sources_of(harness: BrokerHarness) -> Sources:
    """Return the parts of a scrape."""
    delay = LoopDelay(Stopped())  # type: ignore[arg-type]
    return Sources(harness.broker, RequestTimes(), delay, 1.0, GroupLag(harness.broker))


def frame_of(request: Any, version: int) -> Callable[[], memoryview]:
    """Return a function that makes a new frame of the request: appends change their frame."""
    encoded = b"".join(map(bytes, frames.encode_request(request, version, 1, "bench")))[4:]
    return lambda: memoryview(bytearray(encoded))


def block_us(dispatch: Callable[[Any, memoryview], Any], connection: Any, make: Callable[[], memoryview]) -> float:
    """Return the CPU time per request of one block, in microseconds."""
    made = [make() for _ in range(BLOCK)]
    began_ns = time.process_time_ns()
    for frame in made:
        dispatch(connection, frame)
    return (time.process_time_ns() - began_ns) / BLOCK / 1000


def requests(harness: BrokerHarness, rounds: int) -> None:
    """Print the cost of the measuring dispatch."""
    harness.create("t", 1)
    produce = produce_request(("t", {0: batch(b"x" * 30)}), acks=1)
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=100)])]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    measured = RequestTimes().measured(harness.dispatch.__call__)  # type: ignore[arg-type]
    plain = harness.dispatch.__call__
    for name, request, version in (("Produce", produce, 12), ("Fetch", fetch, 12)):
        make = frame_of(request, version)
        offs, ons = [], []
        # In the order off, on, on, off: a drift of the machine costs both the same.
        for _ in range(rounds):
            first = block_us(plain, harness.client, make)  # type: ignore[arg-type]
            second, third = (block_us(measured, harness.client, make) for _ in range(2))
            last = block_us(plain, harness.client, make)  # type: ignore[arg-type]
            offs.append((first + last) / 2)
            ons.append((second + third) / 2)
        difference = statistics.median(on - off for on, off in zip(ons, offs, strict=True))
        print(f"{name}: {statistics.median(offs):.2f} us, with metrics {difference:+.2f} us")


def scrape(harness: BrokerHarness, partitions: int, rounds: int) -> None:
    """Print the cost of a scrape."""
    for number in range(partitions // 500):
        harness.create(f"topic-{number}", 500)
    harness.broker.partitions.open_all()
    sources = sources_of(harness)
    totals, longest, size = [], [], 0
    for _ in range(rounds):
        work, slices = collect(sources, PROMETHEUS), []
        while True:
            began_s = time.thread_time()
            try:
                next(work)
            except StopIteration as end:
                size = sum(map(len, end.value))
                break
            finally:
                slices.append(time.thread_time() - began_s)
        totals.append(sum(slices))
        longest.append(max(slices))
    print(
        f"Scrape of {partitions} partitions: {statistics.median(totals) * 1000:.0f} ms of CPU (median of {rounds}), "
        f"longest part {statistics.median(longest) * 1000:.1f} ms (worst {max(longest) * 1000:.1f} ms), {size} bytes"
    )


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, open_harness(Path(directory)) as harness:
        gc.disable()
        requests(harness, arguments.rounds)
        gc.enable()
        scrape(harness, arguments.partitions, max(arguments.rounds // 10, 3))


if __name__ == "__main__":
    main()
