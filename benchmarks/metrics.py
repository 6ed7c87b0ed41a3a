"""The cost of metrics: `python -m benchmarks.metrics [--rounds N] [--partitions N]`.

1. Small Produce and Fetch requests through the dispatcher, with and without a meter, in blocks that
   alternate within one process. CPU time per request, medians.
2. The CPU time of two whole brokers, with and without metrics, for small Produce requests in rounds that alternate.
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
from ottla.metrics.exposition import PROMETHEUS
from ottla.protocol import frames
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BLOCK = 200


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


def block_us(dispatch: Callable[[Any, memoryview], Any], connection: Any, make: Callable[[], memoryview]) -> float:
    """Return the CPU time per request of one block, in microseconds."""
    made = [make() for _ in range(BLOCK)]
    began_ns = time.process_time_ns()
    for frame in made:
        dispatch(connection, frame)
    return (time.process_time_ns() - began_ns) / BLOCK / 1000


def deeper(frames_below: int, work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Run `work` below more frames.

    Python allocates its stack in pieces of 16 KiB. At the depth at which a call needs a new piece, each call costs
    microseconds more; other depths show the usual cost.
    """
    return work() if not frames_below else deeper(frames_below - 1, work)


def requests(harness: BrokerHarness, rounds: int) -> None:
    """Print the cost of the meter."""
    harness.create("t", 1)
    produce = produce_request(("t", {0: batch(b"x" * 30)}), acks=1)
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=100)])]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
    measured = Dispatcher(harness.broker, meter=meter()).__call__
    plain = harness.dispatch.__call__
    for name, request, version in (("Produce", produce, 12), ("Fetch", fetch, 12)):
        make = frame_of(request, version)
        offs, ons = [], []

        def compared(make: Callable[[], memoryview] = make) -> tuple[float, float]:
            # In the order off, on, on, off: a drift of the machine costs both the same.
            first = block_us(plain, harness.client, make)  # type: ignore[arg-type]
            second, third = (block_us(measured, harness.client, make) for _ in range(2))
            last = block_us(plain, harness.client, make)  # type: ignore[arg-type]
            return (first + last) / 2, (second + third) / 2

        for number in range(rounds):
            off, on = deeper(number % 50, compared)
            offs.append(off)
            ons.append(on)
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


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time that a process has used in all threads."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def receive(sock: socket.socket) -> None:
    """Read one response."""
    sock.recv(struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)


def pair(directory: Path, names: tuple[str, str], rounds: int, count: int) -> dict[str, float]:
    """Return the CPU time per small Produce request of two brokers that were started in this order, in microseconds."""
    topic = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1)])
    created = b"".join(map(bytes, frames.encode_request(topic, 7, 1, "bench")))
    produce = produce_request(("t", {0: batch(b"x" * 30)}), acks=1)
    produced = b"".join(map(bytes, frames.encode_request(produce, 12, 2, "bench")))
    brokers: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}
    used: dict[str, list[float]] = {name: [] for name in names}
    try:
        for name in names:
            options = ["-X", "ottla.metrics.listener=127.0.0.1:0"] if name == "on" else []
            command = [sys.executable, "-m", "ottla", "up", "--data", str(directory / name), "--listen", "0", *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout is not None
            host, _, port = process.stdout.readline().decode().strip().removeprefix("bootstrap=").rpartition(":")
            sock = socket.create_connection((host, int(port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            brokers[name] = process, sock
            sock.sendall(created)
            receive(sock)
        for number in range(rounds):
            for name in names if number % 2 else reversed(names):
                process, sock = brokers[name]
                began_s = cpu_s(process)
                for _ in range(count):
                    sock.sendall(produced)
                    receive(sock)
                used[name].append((cpu_s(process) - began_s) / count * 1e6)
    finally:
        for process, sock in brokers.values():
            sock.close()
            process.terminate()
            process.wait()
    return {name: statistics.median(values) for name, values in used.items()}


def processes(pairs: int, rounds: int = 8, count: int = 2_000) -> None:
    """Print the CPU time of whole brokers with and without metrics.

    Two brokers with the same settings differ by up to 8 %, so that several pairs are needed, in both orders.
    """
    found = []
    for number in range(pairs):
        with tempfile.TemporaryDirectory() as directory:
            found.append(pair(Path(directory), ("off", "on") if number % 2 else ("on", "off"), rounds, count))
    off, on = (statistics.median(each[name] for each in found) for name in ("off", "on"))
    ratios = ", ".join(f"{each['on'] / each['off'] - 1:+.1%}" for each in found)
    print(f"Broker, one small Produce at a time: {off:.1f} us of CPU, with metrics {on:.1f} us; pairs: {ratios}")


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
    processes(max(arguments.rounds // 10, 2))


if __name__ == "__main__":
    main()
