"""The catch-up of a mirror against the line, which is the time that the same bytes take without a mirror.

The source is an Ottla broker with a backlog; a new target copies it. Three rates, alternating, all from the same
source over loopback to files in the same file system, without fsync:

- mirror: from the last moment without a copied record to the last record of the last partition; and from the creation
  of the mirror;
- fetch: one blocking socket, Fetch requests as a follower sends them (1 MiB of each partition, 10 MiB together, one in
  flight), and a `write` of the records of each partition. It checks no CRC, writes no index, and has no followers;
- TCP: `sendfile` of the source's segments into a socket, and a `write` of each received part.

With a round trip or a rate, all three go through a line (`line.py`), which has threads in this process.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.ottla_process import OttlaProcess

from benchmarks.brokers import cpu_times
from benchmarks.mirror.line import Line
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
Begin = Callable[[str], None]
"""Begins a copy into the cluster with this address."""


class Limits(NamedTuple):
    """The limits of the line; by default none."""

    round_trip_ms: float
    megabytes_per_s: float

    @property
    def are_set(self) -> bool:
        """Whether there is a line at all."""
        return self != (0, float("inf"))


class Rates(NamedTuple):
    """One round, in MB of records per second."""

    mirror: float
    since_creation: float
    fetch: float
    tcp: float
    target_cpu_s: float


def run(gigabytes: float, rounds: int, limits: Limits, fetchers: int) -> None:
    """Fill a source, run the rounds with `num.replica.fetchers` of the mirror, and print the rates."""
    count = int(gigabytes * 1e9) // SIZE
    found = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-mirror-"))
        line = stack.enter_context(Line())
        settings = {"advertised.listeners": f"PLAINTEXT://{line.address}"} if limits.are_set else {}
        source = OttlaProcess(Path(folder) / "source", settings)
        command = source.command()
        line.target = command[command.index("--listen") + 1]
        stack.enter_context(source)
        with Admin(source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        load = Load(source.bootstrap)
        load.send(TOPIC, count)
        load.finish()
        line.delay_s, line.bytes_per_s = limits.round_trip_ms / 2000, limits.megabytes_per_s * 1e6
        for number in range(rounds):
            target = OttlaProcess(Path(folder) / "target")
            copying: dict[str, Any] = {"num.replica.fetchers": fetchers}
            begin = partial(start_mirror, source=source.bootstrap, topics=TOPIC, **copying)
            found.append(_round(source, (target, begin), line if limits.are_set else None, count))
            print(f"catch-up {number + 1}: {found[-1]}", flush=True)
    megabytes = count * SIZE / 1e6
    middle = Rates._make(statistics.median(each) for each in zip(*found, strict=True))
    load_average = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    link = f"round trip {limits.round_trip_ms:g} ms, at most {limits.megabytes_per_s:g} MB/s, {fetchers} fetchers"
    print(
        f"catch-up of {megabytes:,.0f} MB, medians of {rounds} rounds; records of {SIZE} bytes, {PARTITIONS} "
        f"partitions, {link}, {os.cpu_count()} cores, load {load_average}"
    )
    print(f"mirror {middle.mirror:,.0f} MB/s, from its creation {middle.since_creation:,.0f} MB/s")
    print(f"share of the fetch loop, {middle.fetch:,.0f} MB/s: {middle.mirror / middle.fetch:.2f}")
    print(f"share of TCP, {middle.tcp:,.0f} MB/s: {middle.mirror / middle.tcp:.2f}")
    print(f"MB per CPU second of the target: {megabytes / middle.target_cpu_s:,.0f}")


def _round(source: OttlaProcess, copy: tuple[OttlaProcess, Begin], line: Line | None, count: int) -> Rates:
    """The rates of a new target, whose copy begins with a call, and of the same bytes without a mirror."""
    megabytes = count * SIZE / 1e6
    target, begin = copy
    rates = []
    files = target.directory.parent / "line"
    for work in (lambda: _fetch_all(source.bootstrap, files, count), lambda: _send_all(source, line, files)):
        listener = "" if line is None else line.target
        files.mkdir()
        rates.append(megabytes / _timed(work))
        shutil.rmtree(files)
        if line is not None:
            line.target = listener
    with target:
        cpu_s, created_s = sum(cpu_times(target.pid)), time.monotonic()
        begin(target.bootstrap)
        begun_s = created_s

        def has_begun() -> bool:
            nonlocal begun_s
            asked_s = time.monotonic()
            if records(target.bootstrap, TOPIC):
                return True
            begun_s = asked_s
            return False

        until(has_begun, 0.005)
        until(lambda: records(target.bootstrap, TOPIC) >= count, 0.02)
        ended_s = time.monotonic()
        cpu_s = sum(cpu_times(target.pid)) - cpu_s
    shutil.rmtree(target.directory)
    return Rates(megabytes / (ended_s - begun_s), megabytes / (ended_s - created_s), rates[0], rates[1], cpu_s)


def _timed(work: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    work()
    return time.monotonic() - begun_s


# -- the line ----------------------------------------------------------------------------------------------------


def _fetch_all(address: str, directory: Path, count: int) -> None:
    """Fetch all records into a file for each partition."""
    positions = dict.fromkeys(range(PARTITIONS), 0)
    frame = bytearray(MOST_BYTES + PARTITIONS * EACH_BYTES)
    host, _, port = address.rpartition(":")
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


def _send_all(source: OttlaProcess, line: Line | None, directory: Path) -> None:
    """Send the source's segments through a socket into a file."""
    segments = sorted(source.data.rglob(f"{TOPIC}-*/*.log"))
    sizes = [path.stat().st_size for path in segments]
    buffer = memoryview(bytearray(1 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server, open(directory / "bytes", "wb", buffering=0) as file:
        address = "{}:{}".format(*server.getsockname())
        sender = threading.Thread(target=_send, args=(segments, server), daemon=True)
        sender.start()
        if line is not None:
            line.target, address = address, line.address
        host, _, port = address.rpartition(":")
        received = 0
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            while size := connection.recv_into(buffer):
                file.write(buffer[:size])
                received += size
        sender.join(TIMEOUT_S)
    assert received == sum(sizes), f"{received} of {sum(sizes)} bytes"


def _send(segments: list[Path], server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        for path in segments:
            with open(path, "rb") as file:
                connection.sendfile(file)
