"""One machine with two cores: `ottla up --brokers 2` against `--brokers 1`, as MB/s of small produce requests.

    python -m benchmarks.cores [--seconds N]

Requests of ten records of 1 KB, acks=1, 32 in flight over each of two connections per broker. The client sends bytes
that it encoded once, because it shares the cores with the brokers; what it takes is printed.
"""

from __future__ import annotations

import argparse
import resource
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table
from tests.cluster.processes import Cluster

from benchmarks import results
from benchmarks.brokers import cpu_times
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records import encode_batch

RECORDS, RECORD_BYTES, IN_FLIGHT, CONNECTIONS = 10, 1000, 32, 2
AIM = 1.7


def main() -> int:
    """Run both in turn, three times; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    console = Console()
    conditions = results.conditions(3, 1.0)
    console.print("; ".join(f"{name}: {value}" for name, value in conditions.items()), highlight=False)
    table = Table(title="produce on one machine", title_justify="left")
    for heading in ("brokers", "MB/s", "cores used by brokers", "cores used by the client"):
        table.add_column(heading, justify="right")
    medians = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        clusters = {count: Cluster(Path(directory) / str(count), brokers=count) for count in (1, 2)}
        try:
            for cluster in clusters.values():
                cluster.start()
            found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
            for _ in range(3):
                for count, cluster in clusters.items():
                    found[count].append(_run(cluster, count, seconds))
        finally:
            for cluster in clusters.values():
                cluster.close()
    for count, runs in found.items():
        medians[count] = statistics.median(each[0] for each in runs)
        table.add_row(str(count), *(f"{statistics.median(column):.2f}" for column in zip(*runs, strict=True)))
    console.print(table)
    console.print(f"2 brokers over 1: {medians[2] / medians[1]:.2f} (aim ≥ {AIM})")
    return 0


def _run(cluster: Cluster, count: int, seconds: float) -> tuple[float, float, float]:
    """MB/s, and the cores that the brokers and the client used."""
    topic = f"bench-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    how = [[node] for node in range(1, count + 1)]
    admin.create_topics([NewTopic(topic, count, replica_assignment=how)], operation_timeout=30)[topic].result(30)
    time.sleep(0.5)
    frames = {node: _frame(topic, node - 1) for node in range(1, count + 1)}
    sent: list[int] = []
    deadline = time.monotonic() + seconds
    cpu, own = _cpu_seconds(cluster), _own_seconds()
    threads = [
        threading.Thread(target=_drive, args=(cluster.nodes[node].bootstrap, frame, deadline, sent))
        for node, frame in frames.items()
        for _ in range(CONNECTIONS)
    ]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 30)
    took = time.perf_counter() - begin
    used, client = _cpu_seconds(cluster) - cpu, _own_seconds() - own
    admin.delete_topics([topic])[topic].result(30)
    return sum(sent) * RECORDS * RECORD_BYTES / 1e6 / took, used / took, client / took


def _frame(topic: str, partition: int) -> bytes:
    now_ms = int(time.time() * 1000)
    batch = bytes(encode_batch([(now_ms, None, b"x" * RECORD_BYTES, [])] * RECORDS))
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return b"".join(encode_request(request, 9, 1, "bench"))


def _drive(address: str, frame: bytes, deadline: float, sent: list[int]) -> None:
    host, port = address.rsplit(":", 1)
    frames, count = frame * IN_FLIGHT, 0
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(frames)
        size, buffer = 0, bytearray(1 << 16)
        while time.monotonic() < deadline:
            connection.sendall(frames)  # the next window, while the broker works on this one
            if not size:
                connection.recv_into(buffer, 4, socket.MSG_PEEK)
                size = 4 + int.from_bytes(buffer[:4], "big")
            left = size * IN_FLIGHT
            while left:
                got = connection.recv_into(buffer, min(left, len(buffer)), socket.MSG_WAITALL)
                if not got:
                    raise RuntimeError(f"{address} closed the connection")
                left -= got
            count += IN_FLIGHT
    sent.append(count)


def _cpu_seconds(cluster: Cluster) -> float:
    return sum(sum(cpu_times(node.pid)) for node in cluster.nodes.values())


def _own_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
