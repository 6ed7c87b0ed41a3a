"""Records what real clients send, for the fuzzers: `make corpus`.

As a pytest plugin (`-p tests.fuzz.recording`) it puts a proxy between the shared broker of a test run and its clients:
librdkafka, kafka-python, aiokafka, kafkajs, kcat, Kafka's own tools, Ottla's clients. It retains a few requests of
different lengths for each client software, API and version.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from ottla.protocol import frames
from ottla.protocol.wire import DecodeError
from tests import conftest
from tests.fuzz.recorded import CORPUS, Recorded, write
from tests.ottla_process import OttlaProcess

KEPT = 3
API_VERSIONS = 18
LONGEST = 4096
SOFTWARE = (
    ("rdkafka", "librdkafka"),
    ("kafka-python", "kafka-python"),
    ("aiokafka", "aiokafka"),
    ("stories", "kafkajs"),
    ("ottla", "ottla"),
    ("adminclient|console-|consumer-|producer|perf-|GetOffset|[a-z-]+-tool|admin-|apache-kafka", "apache-kafka-java"),
)
WRITE_EVERY = 200


class Recorder:
    """Forwards bytes in both directions, and records requests."""

    def __init__(self, path: Path = CORPUS) -> None:
        self.path = path
        self.target: tuple[str, int] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int, int], list[Recorded]] = defaultdict(list)
        self._connections = 0
        self._seen = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self.target is not None
            try:
                broker = socket.create_connection(self.target)
            except OSError:  # it has stopped
                client.close()
                continue
            for sock in (client, broker):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections += 1
            threading.Thread(target=self._requests, args=(client, broker, self._connections), daemon=True).start()
            threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    @staticmethod
    def _answers(broker: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 16):
                client.sendall(data)
        _close(client, broker)

    def _requests(self, client: socket.socket, broker: socket.socket, number: int) -> None:
        software, buffer = "", b""
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= 4 + struct.unpack_from(">i", buffer)[0]:
                    (size,) = struct.unpack_from(">i", buffer)
                    frame, buffer = buffer[4 : 4 + size], buffer[4 + size :]
                    software = software or software_of(frame)
                    self._keep(Recorded(software, number, frame))
                broker.sendall(data)
        _close(client, broker)

    def _keep(self, request: Recorded) -> None:
        if not 8 <= len(request.frame) <= LONGEST:
            return
        with self._lock:
            row = self._kept[(request.client, *request.api)]
            if len(row) < KEPT and all(len(other.frame) != len(request.frame) for other in row):
                row.append(request)
            self._seen += 1
            if self._seen % WRITE_EVERY == 0:
                self.save()

    def save(self) -> None:
        requests = [each for row in self._kept.values() for each in row]
        write(self.path, sorted(requests, key=lambda each: each.connection))

    def close(self) -> None:
        with self._lock:
            self.save()
        self._listener.close()


def software_of(frame: bytes) -> str:
    """The software that sent a request, by its client id (the Java tools have many), or by its ApiVersions request."""
    try:
        header, position = frames.decode_request_header(memoryview(frame))
    except DecodeError:
        return ""
    name = header.client_id or ""
    if not name and header.api_key == API_VERSIONS and header.api_version >= 3:
        (length,) = frame[position : position + 1]
        name = frame[position + 1 : position + length].decode()
    return next((software for pattern, software in SOFTWARE if re.match(pattern, name)), "")


def _close(*sockets: socket.socket) -> None:
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


class _Proxied(conftest._Ottla):
    """The shared broker, with the proxy's address as its bootstrap address."""

    def __init__(self, directory: Path) -> None:
        self.recorder = Recorder()
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.recorder.port}"}
        self.process = OttlaProcess(directory, {**conftest.TEST_PROPERTIES, **advertised})
        self.process.start()
        host, port = _listening(self.process)
        self.recorder.target = (host, port)
        self.bootstrap = f"127.0.0.1:{self.recorder.port}"

    def close(self) -> None:
        self.recorder.close()
        self.process.stop()


def _listening(process: OttlaProcess) -> tuple[str, int]:
    """The address that the process listens on, which may differ from the advertised one."""
    inodes = {link.readlink().name for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return "127.0.0.1", int(fields[1].rpartition(":")[2], 16)
    raise AssertionError("it listens nowhere")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    conftest._Ottla = _Proxied  # type: ignore[misc]
