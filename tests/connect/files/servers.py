"""Starts a real S3 server on loopback: SeaweedFS from PyPI."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

_DEADLINE_S = 30.0
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


class S3Server(NamedTuple):
    """The address of a server with a bucket named `bucket`, and the settings of connectors for it."""

    url: str

    @property
    def settings(self) -> dict[str, str]:
        return {"s3.endpoint": self.url, "s3.access.key.id": "any", "s3.secret.access.key": "any"}

    def make_bucket(self, name: str) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT"), timeout=10).close()


def _free_ports(count: int) -> list[int]:
    """Return ports whose gRPC port (plus 10000) is valid, too."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if port < 55000:
                ports.append(port)
    return ports


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Run a server until the end of the block."""
    weed = Path(sys.executable).with_name("weed")
    ports = _free_ports(len(_PORTS) * 2)
    options = [f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=False)]
    grpc = [f"-{name}.grpc={port}" for name, port in zip(_PORTS, ports[4:], strict=False)]
    command = [str(weed), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [*options, *grpc, "-master.volumeSizeLimitMB=64", "-volume.max=50"]
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
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"SeaweedFS does not start: {log.read_text()[-2000:]}")
