"""The cost of metrics: `python -m benchmarks.metrics [--rounds N] [--partitions N]`.

1. The CPU time of a whole broker per small Produce and Fetch request over a socket, without metrics.
2. The same requests through one dispatcher, with and without a meter, in short blocks that alternate within one
   process: two dispatchers differ by their places in memory. CPU time of the thread per request, medians; its share of
   1. is the cost of metrics. The dispatcher without a meter is measured twice, which shows the precision.
3. A scrape of a broker with many partitions: CPU time of all slices together, and of the longest slice.
"""

from __future__ import annotations

import argparse
import gc
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.broker.harness import BrokerHarness, batch, open_harness, produce_request

from ottla.broker.dispatch import Dispatcher
from ottla.broker.metrics.client_usage import ClientUsages
from ottla.broker.metrics.collect import Sources, collect
from ottla.broker.metrics.lag_rows import GroupLag
from ottla.broker.metrics.loop_delay import LoopDelay
from ottla.broker.metrics.meter import Meter
from ottla.broker.metrics.requests import RequestTimes
from ottla.common.kernels import is_compiled
from ottla.metrics.exposition import PROMETHEUS
from ottla.protocol import frames
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BLOCK = 100
VERSION = 12
BUSY = 300_000
"""How many requests an API had in this minute: the first ones are measured more often. A busy broker has as many."""


class Stopped:
    """The event loop of `LoopDelay`, which takes no samples here."""

    def time(self) -> float:
        """Return a fixed time."""
        return 0.0


def meter() -> Meter:
    """Return a meter of its own."""
    return Meter(RequestTimes(), ClientUsages(time.monotonic))


def sources_of(harness: BrokerHarness) -> Sources:
    """Return the parts of a scrape."""
    delay = LoopDelay(Stopped())  # type: ignore[arg-type]
    return Sources(harness.broker, meter(), delay, 1.0, GroupLag(harness.broker))


def frame_of(request: Any, version: int) -> Callable[[], memoryview]:
    """Return a function that makes a new frame of the request: appends change their frame."""
    encoded = b"".join(map(bytes, frames.encode_request(request, version, 1, "bench")))[4:]
    return lambda: memoryview(bytearray(encoded))


def block_us(dispatch: Dispatcher, meter: Meter | None, connection: Any, make: Callable[[], memoryview]) -> float:
    """Return the CPU time per request of one block, in microseconds."""
    made = [make() for _ in range(BLOCK)]
    dispatch._meter = meter  # noqa: SLF001 - the only difference between two blocks
    began_ns = time.thread_time_ns()
    for frame in made:
        dispatch(connection, frame)
    return (time.thread_time_ns() - began_ns) / BLOCK / 1000


def deeper(frames_below: int, work: Callable[[], None]) -> None:
    """Run `work` below more frames.

    Python allocates its stack in pieces of 16 KiB. At the depth at which a call needs a new piece, each call costs
    microseconds more; other depths show the usual cost.
    """
    if frames_below:
        deeper(frames_below - 1, work)
    else:
        work()


def small_requests() -> dict[str, Any]:
    """Return a Produce of one record and a Fetch of it, without a session."""
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=100)])]
    return {
        "Produce": produce_request(("t", {0: batch(b"x" * 30)}), acks=1),
        "Fetch": FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics),
    }


def requests(harness: BrokerHarness, rounds: int, whole_us: dict[str, float]) -> None:
    """Print the cost of the meter, also as a share of the CPU time `whole_us` of the broker."""
    harness.create("t", 1)
    measured = meter()
    print(f"Kernels of the meter compiled: {is_compiled('ottla.broker.metrics._request_counter')}; {rounds} rounds")
    for name, request in small_requests().items():
        make, key = frame_of(request, VERSION), request.API_KEY
        found: dict[str, list[float]] = {"off": [], "again": [], "on": []}
        meters = {"off": None, "again": None, "on": measured}

        def compared(
            make: Callable[[], memoryview] = make,
            key: int = key,
            found: dict[str, list[float]] = found,
            meters: dict[str, Meter | None] = meters,
        ) -> None:
            # There and back: a drift of the machine costs all of them the same.
            for each in (*meters, *reversed(meters)):
                measured.times.counts[key] = BUSY
                found[each].append(block_us(harness.dispatch, meters[each], harness.client, make))

        for number in range(rounds):
            deeper(number % 50, compared)
        off, again = (statistics.median(found[each]) for each in ("off", "again"))
        cost = statistics.median(on - off for on, off in zip(found["on"], found["off"], strict=True))
        print(
            f"{name}: {off:.2f} us in the dispatcher (the same again: {again - off:+.2f} us), with metrics"
            f" {cost:+.2f} us: {cost / off:.1%} of it, {cost / whole_us[name]:.1%} of the broker's"
            f" {whole_us[name]:.1f} us"
        )


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


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time that a process has used in all threads."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def receive(sock: socket.socket) -> None:
    """Read one response."""
    sock.recv(struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)


def whole_broker_us(rounds: int, count: int = 1_000) -> dict[str, float]:
    """Return the CPU time of a broker per small request over a socket, one at a time, in microseconds.

    Two brokers with the same settings differ by up to 8 %, so that a broker with metrics is not compared with another.
    """
    topic = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)])
    created = b"".join(map(bytes, frames.encode_request(topic, 7, 1, "bench")))
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "ottla", "up", "--data", directory, "--listen", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert process.stdout is not None
            host, _, port = process.stdout.readline().decode().strip().removeprefix("bootstrap=").rpartition(":")
            with socket.create_connection((host, int(port))) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(created)
                receive(sock)
                for name, request in small_requests().items():
                    encoded = b"".join(map(bytes, frames.encode_request(request, VERSION, 2, "bench")))
                    used = []
                    for _ in range(rounds):
                        began_s = cpu_s(process)
                        for _ in range(count):
                            sock.sendall(encoded)
                            receive(sock)
                        used.append((cpu_s(process) - began_s) / count * 1e6)
                    found[name] = statistics.median(used)
        finally:
            process.terminate()
            process.wait()
    return found


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=10_000)
    arguments = parser.parse_args()
    whole_us = whole_broker_us(max(arguments.rounds // 20, 3))
    with tempfile.TemporaryDirectory() as directory, open_harness(Path(directory)) as harness:
        gc.disable()
        requests(harness, arguments.rounds, whole_us)
        gc.enable()
        scrape(harness, arguments.partitions, max(arguments.rounds // 30, 3))


if __name__ == "__main__":
    main()
