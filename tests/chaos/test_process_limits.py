"""Limits of a broker process: released memory, and exhausted open files.

Real processes; memory and open files are read from /proc.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.support import KAFKA_STORAGE_ERROR, Writer, admin, create_topic
from tests.clients.wire import API_VERSIONS, Connection, batch, produce, request, stored_batches
from tests.ottla_process import BrokerDied, OttlaProcess

WAIT_S = 20.0
MIB = 1 << 20


class LimitedProcess(OttlaProcess):
    """A broker with a limit of open files that it cannot raise."""

    def __init__(self, directory: Path, open_files: int, properties: dict[str, object] | None = None) -> None:
        super().__init__(directory, properties)
        self.open_files = open_files

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", f'ulimit -n {self.open_files} && exec "$@"', "sh", *super().command()]


def resident_bytes(process: OttlaProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def open_descriptors(process: OttlaProcess) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextlib.contextmanager
def many_connections(process: OttlaProcess, count: int) -> Iterator[list[socket.socket]]:
    """Open idle connections; some of them may be rejected."""
    host, _, port = process.bootstrap.rpartition(":")
    sockets: list[socket.socket] = []
    try:
        sockets.extend(socket.create_connection((host, int(port)), timeout=WAIT_S) for _ in range(count))
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker has closed it."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def cpu_s(process: OttlaProcess) -> float:
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def answers(process: OttlaProcess) -> bool:
    with Connection(process.bootstrap) as connection:
        connection.send(request(API_VERSIONS, 0, 1, b""))
        return len(connection.receive()) > 100


@pytest.mark.parametrize(
    ("connections", "claimed", "sent"),
    [(400, 2 * MIB, 3), (200, 2 * MIB, 1 * MIB), (1000, 300_000, 50_000), (1000, 60_000, 40_000)],
    ids=["sizes that are only claimed", "half-received frames", "many beginnings of frames", "small frames"],
)
def test_half_received_frames_use_and_release_the_memory_of_arrived_bytes(
    tmp_path: Path, connections: int, claimed: int, sent: int
) -> None:
    with OttlaProcess(tmp_path) as process:
        assert answers(process)
        before = resident_bytes(process)
        with many_connections(process, connections) as sockets:
            for sock in sockets:
                sock.sendall(struct.pack(">i", claimed) + bytes(sent))
            assert answers(process)
            expected = connections * sent
            until(lambda: resident_bytes(process) - before >= expected * 3 // 4, "not all has arrived")
            time.sleep(0.2)
            most = resident_bytes(process) - before
            assert most < 1.3 * expected + connections * 12_000 + 8 * MIB, f"{most >> 20} MiB for {expected >> 20} MiB"
        until(lambda: open_descriptors(process) < 100, "the connections are still there")
        assert answers(process)
        until(lambda: resident_bytes(process) - before < 12 * MIB, f"{resident_bytes(process) >> 20} MiB stay")
        process.assert_no_traceback()


LIMIT = 1024


def test_more_connections_than_descriptors_lose_no_record_and_no_directory(tmp_path: Path) -> None:
    with LimitedProcess(tmp_path, LIMIT) as process:
        create_topic(process, "t", partitions=20, segment_bytes=MIB)
        writer = Writer(process, "t", size=200_000)
        writer.start()
        writer.wait_for(5)
        with many_connections(process, 1_300) as sockets:
            writer.wait_for(40)
            refused = sum(is_closed(sock) for sock in sockets)
            assert 400 < refused < 800, f"{refused} of 1,300 were refused"
            for sock in sockets[:20]:  # so that an administrator can connect
                sock.close()
            create_topic(process, "later", partitions=5)
            writer.wait_for(40)
            assert open_descriptors(process) <= LIMIT - 64
        writer.wait_for(10)
        until(lambda: answers(process), "no connection is accepted again")
        writer.finish()
        log = process.log_tail(limit=10_000_000)
        assert "offline" not in log
        lines = [line for line in log.splitlines() if "Refusing connections" in line]
        assert 1 <= len(lines) <= 3, lines
        assert f"{LIMIT} open files" in lines[0]
        assert "ulimit -n" in lines[0]
        process.assert_no_traceback()
        process.kill()
        process.start()
        writer.check()


def test_shortage_caused_by_other_processes_is_survived(tmp_path: Path) -> None:
    """The limit is set below the number of open files: no file can be opened until it is raised again."""
    with OttlaProcess(tmp_path) as process:
        create_topic(process, "t", segment_bytes=MIB)
        writer = Writer(process, "t", size=100_000)
        writer.retried = {KAFKA_STORAGE_ERROR}
        writer.start()
        writer.wait_for(5)
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        since = process.log_size()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, limits[1]))
        until(lambda: "can be retried" in process.log_tail(since), "no shortage was met")
        with many_connections(process, 50) as sockets:
            assert len(sockets) == 50
            before, begun = cpu_s(process), time.monotonic()
            time.sleep(1.0)
            assert cpu_s(process) - before < 0.9 * (time.monotonic() - begun), "the accept loop spins"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        writer.wait_for(50)
        writer.finish()
        create_topic(process, "later")
        assert "offline" not in process.log_tail(limit=10_000_000)
        process.assert_no_traceback()
        process.kill()
        process.start()
        writer.check()


def test_partitions_without_descriptors_are_served_when_descriptors_are_free(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path) as process:
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (200, limits[1]))
        create_topic(process, "many", partitions=250)
        until(lambda: "many-249 is offline" in process.log_tail(limit=10_000_000), "all could be opened")
        with Connection(process.bootstrap) as connection:
            assert produce(connection, "many", batch([b"a"]), 0).error == 0
            assert produce(connection, "many", batch([b"a"]), 249).error == KAFKA_STORAGE_ERROR
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        with Connection(process.bootstrap) as connection:
            assert produce(connection, "many", batch([b"a"]), 249).error == 0
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (200, limits[1]))
        client = admin(process)
        client.delete_topics(["many"])["many"].result(WAIT_S)
        create_topic(process, "few", partitions=50)
        with Connection(process.bootstrap) as connection:
            assert produce(connection, "few", batch([b"a"]), 49).error == 0
        assert answers(process)
        process.assert_no_traceback()


def test_start_that_cannot_open_its_logs_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path) as process:
        create_topic(process, "many", partitions=100)
        with Connection(process.bootstrap) as connection:
            for index in range(100):  # a log has files from its first record on
                assert produce(connection, "many", batch([b"a"]), index).error == 0
    limited = LimitedProcess(tmp_path, 60)
    with pytest.raises(BrokerDied, match=r"Too many open files.*limit"):
        limited.start()
    with OttlaProcess(tmp_path) as process:
        assert stored_batches(process.bootstrap, "many", 99)
