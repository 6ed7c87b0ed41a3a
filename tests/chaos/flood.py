"""`Flood`: a load generator in its own process, cheap enough that the broker is the bottleneck.

Many connections repeat a cycle of requests that were encoded before: a Produce of one record to each of three
partitions, then a Fetch that always returns the same record. Each record names its connection. The order, error and
offset of each response are checked. `python -m tests.chaos.flood` is the child process: it reads commands as lines of
JSON, and writes a line of JSON for each.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import deadlines
from tests.clients.wire import FETCH, PRODUCE, Connection, batch, produce_body, request, string

ROOT = Path(__file__).parents[2]
WRITES = 3  # of a cycle
REQUESTS = WRITES + 1
TICK_S = 0.005
CHUNK = 1 << 18
DEADLINE_S = 60.0
NO_OWNER = -1
_OWNER = re.compile(rb"owner=(\d{6});")


def value_of(owner: int) -> bytes:
    """A value of 100 bytes that names its connection and its number."""
    return b"owner=%06d;" % owner + bytes(87)


def owner_of(data: bytes, start: int, stop: int) -> int:
    """The connection and the number of the record in these bytes."""
    found = _OWNER.search(data, start, stop)
    assert found is not None, "the record is not from the flood"
    return int(found[1])


def fetch_body(topic: str) -> bytes:
    """A Fetch v4 of the first batch of partition 0, without waiting."""
    body = struct.pack(">iiiib", -1, 0, 0, 1, 0) + struct.pack(">i", 1) + string(topic)
    return body + struct.pack(">iiqi", 1, 0, 0, 1)


class _Line:
    """One connection: the due cycles, the bytes that its socket took, and its responses."""

    def __init__(self, bootstrap: str, owner: int, written: str, read: str, partitions: int, send_buffer: int) -> None:
        self.owner = owner
        self.partitions = [(owner + i) % partitions for i in range(WRITES)]
        frames = [
            request(PRODUCE, 3, i, produce_body(written, partition, batch([value_of(owner)])))
            for i, partition in enumerate(self.partitions)
        ]
        frames.append(request(FETCH, 4, WRITES, fetch_body(read)))
        self.cycle_bytes = sum(map(len, frames))
        self.data = memoryview(b"".join(frames) * (CHUNK // self.cycle_bytes + 1))
        with Connection(bootstrap) as connection:
            connection.send(frames[-1])
            self.fetched = connection.receive()
        name = len(written.encode())
        head = f"4x i 6x {name}x 8x h q 12x".replace(" ", "")  # size; correlation, topics, name, ..., error, offset
        self.answer = struct.Struct(">" + head * WRITES + f"4x {len(self.fetched)}s".replace(" ", ""))
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.socket.connect((host, int(port)))
        self.socket.setblocking(False)
        self.sent = 0
        self.answered = 0
        self.blocked = 0
        self._rest = b""

    def send(self, due: int) -> None:
        """Send the due cycles as far as the socket takes them."""
        left = due * self.cycle_bytes - self.sent
        while left > 0:
            start = self.sent % self.cycle_bytes
            try:
                taken = self.socket.send(self.data[start : start + left])
            except BlockingIOError:
                self.blocked += 1
                return
            self.sent += taken
            left -= taken

    @property
    def begun(self) -> int:
        """The number of cycles that were sent at least in part."""
        return -(-self.sent // self.cycle_bytes)

    def receive(self, owners: list[array.array[int]], errors: list[int]) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.socket.recv(CHUNK)
                if not data:
                    raise ConnectionError(f"the broker closed connection {self.owner}")
                self._take(self._rest + data, owners, errors)
                if len(data) < CHUNK:
                    return

    def _take(self, data: bytes, owners: list[array.array[int]], errors: list[int]) -> None:
        whole = len(data) // self.answer.size * self.answer.size
        self._rest = data[whole:]
        for values in self.answer.iter_unpack(memoryview(data)[:whole]):
            if values[0 : 3 * WRITES : 3] != tuple(range(WRITES)) or values[-1] != self.fetched:
                raise AssertionError(f"connection {self.owner} was given an answer to another request")
            self.answered += 1
            for i, partition in enumerate(self.partitions):
                error, offset = values[3 * i + 1 : 3 * i + 3]
                if error:
                    errors.append(error)
                    continue
                mine = owners[partition]
                if offset >= len(mine):
                    mine.extend([NO_OWNER] * (offset + 1000 - len(mine)))
                if mine[offset] != NO_OWNER:
                    raise AssertionError(f"{mine[offset]} and {self.owner} both have offset {offset} of {partition}")
                mine[offset] = self.owner


class _Generator:
    def __init__(
        self, bootstrap: str, pid: int, lines: int, written: str, read: str, partitions: int, send_buffer: int
    ) -> None:
        self._pid = pid
        self._owners = [array.array("i") for _ in range(partitions)]
        self._errors: list[int] = []
        self._lines = [_Line(bootstrap, owner, written, read, partitions, send_buffer) for owner in range(lines)]

    def cpu_s(self) -> float:
        """The CPU time of the broker."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(self, seconds: float, ahead: int | None, rate: float | None) -> dict[str, Any]:
        """Keep this many cycles in flight on each connection, or send `rate` cycles per second on all together.

        Bytes that the sockets have not taken at the end are dropped. The responses to sent requests are awaited.
        """
        lines = self._lines
        before = [line.answered for line in lines]
        begun, cpu_s = time.monotonic(), self.cpu_s()
        due = 0
        while (now := time.monotonic()) < begun + seconds:
            if rate is not None:
                due = int((now - begun) * rate / len(lines))
            for line, start in zip(lines, before, strict=True):
                line.receive(self._owners, self._errors)
                line.send(start + due if ahead is None else line.answered + ahead)
            time.sleep(max(0.0, TICK_S - (time.monotonic() - now)))
        elapsed, cpu_s = time.monotonic() - begun, self.cpu_s() - cpu_s
        carried = [line.answered - start for line, start in zip(lines, before, strict=True)]
        taken = sum(line.begun - start for line, start in zip(lines, before, strict=True))
        drain_s = self._drain()
        return {
            "seconds": elapsed,
            "cpu": cpu_s,
            "offered": due * len(lines) * REQUESTS,
            "taken": taken * REQUESTS,
            "carried": sum(carried) * REQUESTS,
            "least": min(carried) * len(lines) / max(sum(carried), 1),
            "most": max(carried) * len(lines) / max(sum(carried), 1),
            "blocked": sum(line.blocked > 0 for line in lines),
            "drain": drain_s,
            "answered": sum(line.answered - start for line, start in zip(lines, before, strict=True)) * REQUESTS,
            "errors": self._errors,
        }

    def _drain(self) -> float:
        begun = time.monotonic()
        ends = [line.begun for line in self._lines]
        while any(line.answered < end for line, end in zip(self._lines, ends, strict=True)):
            if time.monotonic() > begun + DEADLINE_S:
                raise AssertionError(f"what was sent was not answered in {DEADLINE_S} s")
            for line, end in zip(self._lines, ends, strict=True):
                line.receive(self._owners, self._errors)
                line.send(end)
            time.sleep(TICK_S)
        return time.monotonic() - begun

    def close(self, place: str) -> dict[str, Any]:
        """Close all connections, and report the acknowledged offsets of each."""
        for line in self._lines:
            line.socket.close()
        for partition, owners in enumerate(self._owners):
            while owners and owners[-1] == NO_OWNER:
                owners.pop()
            Path(place, f"owners-{partition}").write_bytes(owners.tobytes())
        return {}


class Flood:
    """Controls the child process. Each call returns when the command is done; AssertionError if the child fails."""

    def __init__(
        self, bootstrap: str, pid: int, lines: int, written: str, read: str, partitions: int, send_buffer: int
    ) -> None:
        self._partitions = partitions
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.chaos.flood",
                bootstrap,
                *map(str, (pid, lines, written, read, partitions, send_buffer)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadlines.kill(self._child)

    def saturate(self, seconds: float, ahead: int) -> dict[str, Any]:
        """Measure the throughput with this many cycles of each connection in flight."""
        return self._ask("run", seconds=seconds, ahead=ahead, rate=None)

    def offer(self, seconds: float, requests_a_second: float) -> dict[str, Any]:
        """Measure the throughput at this offered rate."""
        return self._ask("run", seconds=seconds, ahead=None, rate=requests_a_second / REQUESTS)

    def hang_up(self, place: Path) -> list[array.array[int]]:
        """Close all connections; returns the owner of each acknowledged offset, by partition."""
        self._ask("close", place=str(place))
        found = []
        for partition in range(self._partitions):
            owners = array.array("i")
            owners.frombytes((place / f"owners-{partition}").read_bytes())
            found.append(owners)
        return found

    def _ask(self, what: str, **arguments: object) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the child has ended
            self._child.stdin.write(json.dumps([what, arguments]) + "\n")
            self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise AssertionError(self._child.communicate(timeout=deadlines.END_S)[1][-3000:])
        figures: dict[str, Any] = json.loads(answer)
        return figures


def main() -> None:
    """The child process: execute a command per line of JSON until the end of the input."""
    bootstrap, pid, lines, written, read, partitions, send_buffer = sys.argv[1:]
    generator = _Generator(bootstrap, int(pid), int(lines), written, read, int(partitions), int(send_buffer))
    for line in sys.stdin:
        what, arguments = json.loads(line)
        print(json.dumps(getattr(generator, what)(**arguments)), flush=True)


if __name__ == "__main__":
    main()
