"""Starts a real S3 server on loopback: SeaweedFS from PyPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.testing.ports import ReservedPort

_DEADLINE_S = 90.0
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


class S3Server(NamedTuple):
    """The address of a server with a bucket named `bucket`, and the settings of connectors for it."""

    url: str

    @property
    def settings(self) -> dict[str, str]:
        return {"s3.endpoint": self.url, "s3.access.key.id": "any", "s3.secret.access.key": "any"}

    def make_bucket(self, name: str) -> None:
        self._send("PUT", name)

    def make_and_read_object(self, key: str) -> None:
        """Fails until a volume server has space for objects, which is later than the first bucket."""
        self._send("PUT", key, b"ready")
        assert self._send("GET", key) == b"ready"
        self._send("DELETE", key)

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.url}/{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            contents: bytes = response.read()
        return contents


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Run a server until the end of the block."""
    weed = Path(sys.executable).with_name("weed")
    # Reserved: another process of the tests must not get a port before the server listens, which takes seconds.
    reserved = [ReservedPort() for _ in range(2 * len(_PORTS))]
    ports = [each.number for each in reserved]
    options = [f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=False)]
    grpc = [f"-{name}.grpc={port}" for name, port in zip(_PORTS, ports[4:], strict=False)]
    command = [str(weed), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [*options, *grpc, "-master.volumeSizeLimitMB=64", "-volume.max=50"]
    # Both have fixed ports by default: a second server on this machine would end at once.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    log = directory / "weed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory, env={**os.environ})
    try:
        server = S3Server(f"http://127.0.0.1:{ports[3]}")
        _wait(server, process, log)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(_DEADLINE_S)


def _wait(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.make_bucket("bucket")
            server.make_and_read_object("bucket/ready")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"SeaweedFS does not start: {log.read_text()[-2000:]}")
