"""The catch-up of a mirror against the line, which is the time that the same bytes take without a mirror.

The source is an Ottla broker with a backlog; a new target copies it. Three rates, alternating, all from the same
source over loopback to files in the same file system, without fsync:

- mirror: from the first copied bytes to the last record of the last partition; and from the creation of the mirror;
- fetch: one blocking socket, Fetch requests as a follower sends them (1 MiB of each partition, 10 MiB together, one in
  flight), and a `write` of the records of each partition. It checks no CRC, writes no index, and has no followers;
- TCP: `sendfile` of the source's segments into a socket, and a `write` of each received part.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.ottla_process import OttlaProcess

from benchmarks.brokers import cpu_times
from benchmarks.mirror.load import PARTITIONS, SIZE, Load, records, start_mirror, until
from ottla.clients.admin import Admin
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.records import iter_batches

TOPIC = "backlog"
VERSION = 12
EACH_BYTES = 1 << 20
MOST_BYTES = 10 << 20
TIMEOUT_S = 60.0


class Rates(NamedTuple):
    """One round, in MB of records per second."""

    mirror: float
    since_creation: float
    fetch: float
    tcp: float
    target_cpu_s: float


def run(gigabytes: float, rounds: int) -> None:
    """Fill a source, run the rounds, and print the rates."""
    count = int(gigabytes * 1e9) // SIZE
    found = []
    with tempfile.TemporaryDirectory(prefix="ottla-mirror-") as folder, OttlaProcess(Path(folder) / "source") as source:
        with Admin(source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        load = Load(source.bootstrap)
        load.send(TOPIC, count)
        load.finish()
        for number in range(rounds):
            found.append(_round(source, Path(folder), count))
            print(f"catch-up {number + 1}: {found[-1]}", flush=True)
    megabytes = count * SIZE / 1e6
    middle = Rates(*(statistics.median(each) for each in zip(*found, strict=True)))
    print(
        f"catch-up of {megabytes:,.0f} MB, medians of {rounds} rounds; records of {SIZE} bytes, {PARTITIONS} "
        f"partitions, {os.cpu_count()} cores, load {', '.join(f'{each:.1f}' for each in os.getloadavg())}"
    )
    print(f"mirror {middle.mirror:,.0f} MB/s, from its creation {middle.since_creation:,.0f} MB/s")
    print(f"share of the fetch loop, {middle.fetch:,.0f} MB/s: {middle.mirror / middle.fetch:.2f}")
    print(f"share of TCP, {middle.tcp:,.0f} MB/s: {middle.mirror / middle.tcp:.2f}")
    print(f"MB per CPU second of the target: {megabytes / middle.target_cpu_s:,.0f}")


def _round(source: OttlaProcess, folder: Path, count: int) -> Rates:
    megabytes = count * SIZE / 1e6
    rates = []
    for line in (_fetch_all, _send_all):
        directory = folder / "line"
        directory.mkdir()
        seconds = _timed(lambda line=line, directory=directory: line(source, directory, count))
        rates.append(megabytes / seconds)
        shutil.rmtree(directory)
    directory = folder / "target"
    directory.mkdir()
    with OttlaProcess(directory) as target:
        cpu_s, created_s = sum(cpu_times(target.pid)), time.monotonic()
        start_mirror(target.bootstrap, source.bootstrap, TOPIC)
        until(lambda: records(target.bootstrap, TOPIC) > 0, 0.005)
        begun_s, before = time.monotonic(), records(target.bootstrap, TOPIC)
        until(lambda: records(target.bootstrap, TOPIC) >= count, 0.02)
        ended_s = time.monotonic()
        cpu_s = sum(cpu_times(target.pid)) - cpu_s
    shutil.rmtree(directory)
    rate = (count - before) * SIZE / 1e6 / (ended_s - begun_s)
    return Rates(rate, megabytes / (ended_s - created_s), *rates, cpu_s)


def _timed(work: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    work()
    return time.monotonic() - begun_s


# -- the line ----------------------------------------------------------------------------------------------------


def _fetch_all(source: OttlaProcess, directory: Path, count: int) -> None:
    """Fetch all records into a file for each partition."""
    positions = dict.fromkeys(range(PARTITIONS), 0)
    frame = bytearray(MOST_BYTES + PARTITIONS * EACH_BYTES)
    host, _, port = source.bootstrap.rpartition(":")
    with contextlib.ExitStack() as stack:
        files = {index: stack.enter_context(open(directory / str(index), "wb", buffering=0)) for index in positions}
        connection = stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
        while sum(positions.values()) < count:
            response = _fetch(connection, frame, positions)
            for data in response.responses[0].partitions:
                assert not data.error_code, data.error_code
                if data.records:
                    files[data.partition_index].write(data.records)
                    positions[data.partition_index] = _next_offset(data.records)


def _fetch(connection: socket.socket, frame: bytearray, positions: dict[int, int]) -> FetchResponse:
    rows = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=EACH_BYTES)
        for index, offset in positions.items()
    ]
    topics = [FetchTopic(topic=TOPIC, partitions=rows)]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=MOST_BYTES, topics=topics)
    connection.sendall(b"".join(encode_request(request, VERSION, 1, "line")))
    _receive(connection, memoryview(frame)[:4])
    whole = memoryview(frame)[: struct.unpack_from(">i", frame)[0]]
    _receive(connection, whole)
    _, position = decode_response_header(whole, FetchRequest.API_KEY, VERSION)
    response, _ = FetchResponse.decode_from(whole, position, VERSION)
    return response


def _receive(connection: socket.socket, wanted: memoryview) -> None:
    at = 0
    while at < len(wanted):
        size = connection.recv_into(wanted[at:])
        if not size:
            raise ConnectionError("the source closed the connection")
        at += size


def _next_offset(batches: Any) -> int:
    return max(header.next_offset for _, header in iter_batches(batches))


def _send_all(source: OttlaProcess, directory: Path, count: int) -> None:  # noqa: ARG001 - the signature of a line
    """Send the source's segments through a socket into a file."""
    segments = sorted(source.data.rglob(f"{TOPIC}-*/*.log"))
    sizes = [path.stat().st_size for path in segments]
    buffer = memoryview(bytearray(1 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server, open(directory / "bytes", "wb", buffering=0) as file:
        sender = threading.Thread(target=_send, args=(segments, server.getsockname()), daemon=True)
        sender.start()
        connection, _ = server.accept()
        received = 0
        with connection:
            connection.settimeout(TIMEOUT_S)
            while size := connection.recv_into(buffer):
                file.write(buffer[:size])
                received += size
        sender.join(TIMEOUT_S)
    assert received == sum(sizes), f"{received} of {sum(sizes)} bytes"


def _send(segments: list[Path], address: tuple[str, int]) -> None:
    with socket.create_connection(address, TIMEOUT_S) as connection:
        for path in segments:
            with open(path, "rb") as file:
                connection.sendfile(file)
