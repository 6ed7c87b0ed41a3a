"""Race of REST proxies: requests of 100 records per CPU second of the proxy's process, produce and consume.

    python -m benchmarks.rest_proxies --karapace DIR --karapace-python PYTHON

DIR is a checkout of Karapace, PYTHON an interpreter with its dependencies. Both proxies serve the same broker, one
after the other, and the same client sends the same requests on several connections. Without --karapace only Ottla runs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.brokers import start_ottla
from ottla.clients import Admin, Producer

RECORDS = 100
VALUE_BYTES = 100
FILLED = 1_000_000
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
V2 = "application/vnd.kafka.v2+json"
START_S = 60.0


class Proxy(NamedTuple):
    """A running server."""

    name: str
    pid: int
    port: int


class Requests(NamedTuple):
    """The request that one connection repeats."""

    method: str
    path: str
    content_type: str
    body: bytes = b""


async def exchange(proxy: Proxy, requests: Requests, until: float, check: Callable[[bytes], int]) -> int:
    """Send requests on one connection until a time; returns the number of records that the answers confirm."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    accept = V2 if requests.body else requests.content_type
    head = (
        f"{requests.method} {requests.path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n"
        f"Content-Type: {requests.content_type}\r\nContent-Length: {len(requests.body)}\r\n\r\n"
    ).encode()
    count = 0
    while time.monotonic() < until:
        writer.write(head + requests.body)
        header = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in header.splitlines()[0], header
        length = int(next(line for line in header.splitlines() if line.startswith("content-length")).split(":")[1])
        count += check(await reader.readexactly(length))
    writer.close()
    return count


def call(proxy: Proxy, method: str, path: str, body: Any = None) -> Any:
    """One request with a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{proxy.port}{path}", data, {"Content-Type": V2}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


async def race(proxy: Proxy, each: list[Requests], seconds: float, check: Callable[[bytes], int]) -> float:
    """Return requests of 100 records per CPU second."""
    await asyncio.gather(*(exchange(proxy, requests, time.monotonic() + 1, check) for requests in each))
    before = cpu_s(proxy.pid)
    until = time.monotonic() + seconds
    counts = await asyncio.gather(*(exchange(proxy, requests, until, check) for requests in each))
    return sum(counts) / RECORDS / (cpu_s(proxy.pid) - before)


def confirmed(answer: bytes) -> int:
    return answer.count(b'"offset"') - answer.count(b'"error_code":5')


def produce_binary(topic: str) -> Requests:
    value = base64.b64encode(b"x" * VALUE_BYTES).decode()
    rows = [{"key": base64.b64encode(b"key-%d" % n).decode(), "value": value} for n in range(RECORDS)]
    return Requests("POST", f"/topics/{topic}", BINARY, json.dumps({"records": rows}).encode())


def produce_json(topic: str) -> Requests:
    rows = [
        {"key": n, "value": {"id": n, "name": "a name", "amount": 12.5, "tags": ["a", "b"]}} for n in range(RECORDS)
    ]
    return Requests("POST", f"/topics/{topic}", JSON, json.dumps({"records": rows}).encode())


def consumer(proxy: Proxy, topic: str, partition: int, content_type: str, max_bytes: int) -> Requests:
    """Create an instance at the beginning of a partition; returns its reads of about 100 records."""
    kind = content_type.split(".")[2]
    settings = {"format": kind, "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    group = f"race-{proxy.name}-{kind}-{partition}"
    instance = call(proxy, "POST", f"/consumers/{group}", settings)["instance_id"]
    base = f"/consumers/{group}/instances/{instance}"
    partitions = {"partitions": [{"topic": topic, "partition": partition}]}
    call(proxy, "POST", f"{base}/assignments", partitions)
    time.sleep(0.5)  # Karapace's consumer assigns in the background
    call(proxy, "POST", f"{base}/positions/beginning", partitions)
    return Requests("GET", f"{base}/records?max_bytes={max_bytes}", content_type)


@contextlib.contextmanager
def running(
    name: str,
    command: list[str],
    environment: dict[str, str],
    port: int,
    ready: Callable[[Proxy], object],
    start_s: float = START_S,
) -> Iterator[Proxy]:
    """Run a server until the end of the block; `ready` raises OSError until it answers."""
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        proxy = Proxy(name, process.pid, port)
        try:
            deadline = time.monotonic() + start_s
            while True:
                with contextlib.suppress(OSError):
                    ready(proxy)
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{name} did not start")
                time.sleep(0.2)
            yield proxy
        finally:
            process.terminate()
            process.wait(30)


def lists_topics(proxy: Proxy) -> object:
    return call(proxy, "GET", "/topics")


def print_ratios(results: dict[str, dict[str, float]]) -> None:
    """Print a row for each discipline: the rate of each contender, and Ottla's rate by Karapace's."""
    for discipline in results["ottla"]:
        row = "  ".join(f"{name} {rates[discipline]:8.1f}" for name, rates in results.items())
        ratio = results["ottla"][discipline] / results.get("karapace", results["ottla"])[discipline]
        print(f"{discipline:16} {row}  {ratio:5.2f}x")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def fill(bootstrap: str) -> None:
    """Send more records than the reads of one proxy need."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for n in range(FILLED):
            key, partition = n % RECORDS, n % 4
            producer.send("race-binary-filled", b"x" * VALUE_BYTES, b"key-%d" % key, partition=partition)
            value = json.dumps(json_value(key)).encode()
            producer.send("race-json-filled", value, b"%d" % key, partition=partition)


def json_value(number: int) -> dict[str, Any]:
    return {"id": number, "name": "a name", "amount": 12.5, "tags": ["a", "b"]}


def measure(proxy: Proxy, seconds: float, connections: int) -> dict[str, float]:
    """Return requests per CPU second of each discipline."""
    found: dict[str, float] = {}
    # About 100 records: the size of their keys and values.
    sizes = {"binary": 106 * RECORDS, "json": 68 * RECORDS}
    for kind, make, content_type in (("binary", produce_binary, BINARY), ("json", produce_json, JSON)):
        topic = f"race-{kind}-{proxy.name}"
        found[f"produce {kind}"] = asyncio.run(race(proxy, [make(topic)] * connections, seconds, confirmed))
        reads = [consumer(proxy, f"race-{kind}-filled", partition, content_type, sizes[kind]) for partition in range(4)]
        found[f"consume {kind}"] = asyncio.run(race(proxy, reads, seconds, confirmed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--karapace", metavar="DIR", help="a checkout of Karapace")
    parser.add_argument("--karapace-python", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, start_ottla(Path(directory)) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for name in ("ottla", "karapace", "filled"):
                admin.create_topic(f"race-binary-{name}", partitions=4)
                admin.create_topic(f"race-json-{name}", partitions=4)
        fill(broker.bootstrap)
        results = {}
        port = free_port()
        command = [sys.executable, "-m", "ottla", "rest", "serve", "-b", broker.bootstrap, "--listen", str(port)]
        with running("ottla", [*command, "--log-level", "error"], {}, port, lists_topics) as proxy:
            results["ottla"] = measure(proxy, options.seconds, options.connections)
        if options.karapace:
            port = free_port()
            environment = {
                "KARAPACE_BOOTSTRAP_URI": broker.bootstrap,
                "KARAPACE_PORT": str(port),
                "KARAPACE_KARAPACE_REST": "true",
                "KARAPACE_LOG_LEVEL": "ERROR",
                "KARAPACE_PRODUCER_LINGER_MS": "0",
                "KARAPACE_PRODUCER_ACKS": "all",
                "PYTHONPATH": str(Path(options.karapace) / "src"),
            }
            command = [options.karapace_python, "-m", "karapace.kafka_rest_apis"]
            with running("karapace", command, environment, port, lists_topics) as proxy:
                results["karapace"] = measure(proxy, options.seconds, options.connections)
    print_ratios(results)


if __name__ == "__main__":
    main()
