"""A tenant at its quota next to another tenant: what the first one gets, and the latency of the second one.

    python -m benchmarks.quotas

Takes 20 seconds. Both tenants are raw connections to one broker with windows of two seconds. The greedy tenant sends
batches of 20 kB without a pause over four connections; the other tenant sends a record each 5 ms. "idle" is the latency
without the greedy tenant, "without a quota" what the greedy tenant costs if it has no quota.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import SETTINGS, Broker, start_ottla
from ottla.clients import Admin
from ottla.clients.admin import QuotaEntity
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.records import encode_batch

TOPIC = "tenants"
LIMIT = 2_000_000
CONNECTIONS = 4
# The burst of an idle client lasts less than the first three seconds, and the samples repeat after them.
WARM_UP_S, MEASURED_S, SHORT_S = 3.0, 6.0, 2.5


class Tenants(NamedTuple):
    """Bytes per second of the greedy tenant, and the latency of the other tenant in ms."""

    greedy_rate: float
    median_ms: float
    p99_ms: float


def frame_of(client_id: str, size: int) -> bytes:
    """A Produce request with one record."""
    data = [PartitionProduceData(0, encode_batch([(0, None, bytes(size), [])]))]
    request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    return b"".join(encode_request(request, 9, 1, client_id))


class Client:
    """A connection that waits for each response, and for the pause in it."""

    def __init__(self, broker: Broker, client_id: str, size: int) -> None:
        self._socket = socket.create_connection(broker.address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._frame = frame_of(client_id, size)

    def ask(self) -> int:
        """Send the request; return the bytes that count for the quota."""
        self._socket.sendall(self._frame)
        answer = self._reader.read(int.from_bytes(self._reader.read(4), "big"))
        _, position = decode_response_header(answer, ProduceRequest.API_KEY, 9)
        response, _ = ProduceResponse.decode_from(memoryview(bytearray(answer)), position, 9)
        assert not response.responses[0].partition_responses[0].error_code
        return len(self._frame) - 4

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._socket.close()


@contextmanager
def greedy(broker: Broker, count: int) -> Iterator[list[tuple[float, int]]]:
    """Send from `count` connections; gives the time and size of each request."""
    sent: list[tuple[float, int]] = []
    stop = threading.Event()

    def work() -> None:
        client = Client(broker, "greedy", 20_000)
        while not stop.is_set():
            sent.append((time.perf_counter(), client.ask()))
        client.close()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def measure(broker: Broker, connections: int, warm_up_s: float, measured_s: float) -> Tenants:
    """Measure both tenants for some seconds."""
    modest = Client(broker, "modest", 100)
    with greedy(broker, connections) as sent:
        time.sleep(warm_up_s)
        began_s, taken_ms = time.perf_counter(), []
        while time.perf_counter() - began_s < measured_s:
            asked_s = time.perf_counter()
            modest.ask()
            taken_ms.append((time.perf_counter() - asked_s) * 1000)
            time.sleep(0.005)
        ended_s = time.perf_counter()
        used = sum(size for at_s, size in tuple(sent) if began_s <= at_s < ended_s)
    modest.close()
    taken_ms.sort()
    return Tenants(used / (ended_s - began_s), taken_ms[len(taken_ms) // 2], taken_ms[len(taken_ms) * 99 // 100])


def main() -> None:
    """Print the table."""
    table = Table(title=f"a quota of {LIMIT / 1e6:g} MB/s", title_justify="left")
    for heading in ("greedy tenant", "its MB/s", "of the quota", "the other: median ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading == "greedy tenant" else "right")
    settings = {**SETTINGS, "quota.window.num": 3}
    with (
        tempfile.TemporaryDirectory() as home,
        start_ottla(Path(home), settings) as broker,
        Admin(broker.bootstrap) as admin,
    ):
        admin.create_topic(TOPIC, partitions=1)
        rows = [
            ("idle", measure(broker, 0, 0.5, SHORT_S)),
            ("without a quota", measure(broker, CONNECTIONS, 0.5, SHORT_S)),
        ]
        admin.alter_client_quotas({QuotaEntity(client_id="greedy"): {"producer_byte_rate": LIMIT}})
        rows.append(("at its quota", measure(broker, CONNECTIONS, WARM_UP_S, MEASURED_S)))
    for name, found in rows:
        share = f"{found.greedy_rate / LIMIT:.1%}" if name == "at its quota" else ""
        table.add_row(name, f"{found.greedy_rate / 1e6:.2f}", share, f"{found.median_ms:.2f}", f"{found.p99_ms:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
