"""The health check of the container image: does the node answer? Docker runs it every ten seconds.

It imports neither settings nor clients, whose import takes ten times the CPU time of the rest. The entry point writes
the address to ask beside server.properties when it starts the broker (`ottla.launch.container`). Without that file the
container runs another command, and `ottla health live` asks the address of `ottla up` by default.
"""

import contextlib
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Final

TARGET: Final = "health-target"
"""The file with one line: a kind of check, a host and a port."""
HTTP, KAFKA, CONNECT = "http", "kafka", "connect"
"""Kinds: the node's own probe, its answer to an ApiVersions request, an accepted connection."""
TIMEOUT_S: Final = 4.0
# ApiVersions (18), version 0, with correlation id 1 and no client id: each broker answers it, whatever its version.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_LIVE: Final = b"GET /health/live HTTP/1.0\r\n\r\n"
_ROOT: Final = "OTTLA_CONTAINER_ROOT"


def check(kind: str, host: str, port: int) -> str:
    """Return what is wrong with the node; "" if it is alive. Waits for up to `TIMEOUT_S` for each step."""
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as connection:
            if kind == CONNECT:
                return ""
            connection.sendall(_LIVE if kind == HTTP else _API_VERSIONS)
            answer = _received(connection, 12 if kind == HTTP else 8)
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    if kind == HTTP:
        return "" if answer.endswith(b" 200") else f"{host}:{port}: {answer.decode('latin-1')}"
    return "" if answer[4:] == b"\x00\x00\x00\x01" else f"{host}:{port}: no answer of a Kafka broker"


def _received(connection: socket.socket, count: int) -> bytes:
    """Return the first bytes of the response; fewer if the node closes the connection."""
    received = b""
    while len(received) < count and (more := connection.recv(count - len(received))):
        received += more
    return received


def main() -> int:
    """Check the node that this container runs, and return the exit code."""
    target = _target(Path(os.environ.get(_ROOT, "/")))
    if target is None:
        os.execv(sys.executable, [sys.executable, "-m", "ottla", "health", "live"])  # noqa: S606 - our own command
    kind, host, port = target
    problem = check(kind, host, int(port))
    print(problem or "live")
    return 1 if problem else 0


def _target(root: Path) -> list[str] | None:
    """Return the contents of the file beside server.properties, wherever that is; None without it."""
    for directory in ("opt/kafka/config", "tmp/ottla"):
        with contextlib.suppress(FileNotFoundError):
            return (root / directory / TARGET).read_text(encoding="utf-8").split()
    return None


if __name__ == "__main__":
    sys.exit(main())
