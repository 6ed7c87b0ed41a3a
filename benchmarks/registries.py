"""Race of schema registries: requests per CPU second of the registry's process.

    python -m benchmarks.registries --karapace DIR --karapace-python PYTHON

DIR is a checkout of Karapace, PYTHON an interpreter with its dependencies. Both registries use the same broker, one
after the other, with topics of their own, and the same client sends the same requests on several connections. Without
--karapace only Ottla runs.

    python -m benchmarks.registries --start 1000000

measures the start of `ottla registry serve` on a topic with that many schemas, in 200,000 subjects.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.brokers import Broker, start_ottla
from benchmarks.rest_proxies import Proxy, cpu_s, free_port, print_ratios, running
from ottla.clients import Admin, Producer
from ottla.registry.records import SchemaKey, SchemaValue, encode_key, encode_schema
from ottla.schemas.model import Schema, SchemaType

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
SCHEMAS = 200
SUBJECTS = 200_000
TOPIC = "_schemas"

Request = tuple[str, str, bytes]
"""Method, path and body."""


def schema(number: int, fields: int = 10) -> str:
    """An Avro schema with ten fields; each number gives another one."""
    rows = [{"name": f"field_{n}", "type": ["null", "string"], "default": None} for n in range(fields)]
    return json.dumps({"type": "record", "name": f"Order{number}", "namespace": "shop", "fields": rows})


def body(number: int, fields: int = 10) -> bytes:
    return json.dumps({"schema": schema(number, fields)}).encode()


def call(registry: Proxy, request: Request) -> Any:
    method, path, data = request
    sent = urllib.request.Request(
        f"http://127.0.0.1:{registry.port}{path}", data or None, {"Content-Type": CONTENT_TYPE}, method=method
    )
    with urllib.request.urlopen(sent, timeout=30) as answer:
        return json.loads(answer.read())


async def exchange(registry: Proxy, requests: Iterator[Request], until: float) -> int:
    """Send requests on one connection until a time; returns the number of answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", registry.port)
    count = 0
    while time.monotonic() < until:
        method, path, data = next(requests)
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {CONTENT_TYPE}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode()
            + data
        )
        header = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in header.splitlines()[0], header
        length = int(next(line for line in header.splitlines() if line.startswith("content-length")).split(":")[1])
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count


async def race(registry: Proxy, requests: Iterator[Request], seconds: float, connections: int) -> float:
    """Return requests per CPU second."""
    await asyncio.gather(*(exchange(registry, requests, time.monotonic() + 1) for _ in range(connections)))
    before, until = cpu_s(registry.pid), time.monotonic() + seconds
    counts = await asyncio.gather(*(exchange(registry, requests, until) for _ in range(connections)))
    return sum(counts) / (cpu_s(registry.pid) - before)


def measure(registry: Proxy, seconds: float, connections: int) -> dict[str, float]:
    """Return requests per CPU second of each discipline."""
    ids = [call(registry, ("POST", f"/subjects/known-{n}/versions", body(n)))["id"] for n in range(SCHEMAS)]
    fresh = itertools.count(SCHEMAS)
    disciplines: dict[str, Callable[[int], Request]] = {
        "lookup by id": lambda n: ("GET", f"/schemas/ids/{ids[n % SCHEMAS]}", b""),
        "register": lambda _: ("POST", f"/subjects/new-{(number := next(fresh))}/versions", body(number)),
        "register again": lambda n: ("POST", f"/subjects/known-{n % SCHEMAS}/versions", body(n % SCHEMAS)),
        "compatibility": lambda n: (
            "POST", f"/compatibility/subjects/known-{n % SCHEMAS}/versions/latest", body(n % SCHEMAS, 9),
        ),
    }  # fmt: skip
    return {
        name: asyncio.run(race(registry, map(make, itertools.count()), seconds, connections))
        for name, make in disciplines.items()
    }


def registers(registry: Proxy) -> object:
    return call(registry, ("POST", "/subjects/first/versions", body(0)))


def fill(broker: Broker, count: int) -> int:
    """Write Avro schemas of seven fields as a registry writes them; returns the bytes of their texts."""
    size = 0
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1, replication_factor=1, config={"cleanup.policy": "compact"})
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=1 << 20, linger_ms=20) as producer:
        for number in range(count):
            subject, version = f"subject-{number % SUBJECTS}-value", number // SUBJECTS + 1
            text = json.dumps(json.loads(schema(number, 7)), separators=(",", ":"))
            size += len(text)
            value = encode_schema(subject, version, SchemaValue(number + 1, Schema(SchemaType.AVRO, text), False))
            producer.send(TOPIC, value, encode_key(SchemaKey(subject, version)), partition=0)
        producer.flush(300.0)
    return size


def status_bytes(pid: int, name: str) -> int:
    """Return a size of /proc/PID/status, such as VmHWM, the most memory that the process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name + ":")).split()[1]) * 1024


def measure_start(count: int) -> None:
    """Start a registry on a topic with many schemas, and print its time and memory."""
    with tempfile.TemporaryDirectory() as directory, start_ottla(Path(directory)) as broker:
        size = fill(broker, count)
        port = free_port()
        command = [sys.executable, "-m", "ottla", "registry", "serve", "-b", broker.bootstrap, "--listen", str(port)]
        begun, broker_cpu = time.monotonic(), cpu_s(broker.pid)

        def is_ready(registry: Proxy) -> object:
            return call(registry, ("GET", f"/schemas/ids/{count}", b""))

        with running("ottla", [*command, "--log-level", "error"], {}, port, is_ready, start_s=600.0) as registry:
            lasted, spent = time.monotonic() - begun, cpu_s(registry.pid)
            peak, now = status_bytes(registry.pid, "VmHWM"), status_bytes(registry.pid, "VmRSS")
            broker_cpu = cpu_s(broker.pid) - broker_cpu
            began = time.monotonic()
            subjects = len(call(registry, ("GET", "/subjects", b"")))
            listing = time.monotonic() - began
            while True:
                with contextlib.suppress(OSError):  # it is not the primary yet
                    call(registry, ("POST", "/subjects/first/versions", body(count)))
                    break
                if time.monotonic() - begun > 600.0:
                    raise SystemExit("the registry did not become the primary")
                time.sleep(0.2)
            writing = time.monotonic() - begun
    print(f"{count:,} schemas, {size / count:.0f} bytes of text each, {subjects:,} subjects")
    print(f"start until the first answer: {lasted:.1f} s, {spent:.1f} s of CPU; of the broker {broker_cpu:.1f} s")
    print(f"memory: {now / 1e6:.0f} MB, {peak / 1e6:.0f} MB at most")
    print(f"a listing of the subjects: {listing:.2f} s; the first registration {writing:.1f} s after the start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--karapace", metavar="DIR", help="a checkout of Karapace")
    parser.add_argument("--karapace-python", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--start", type=int, metavar="SCHEMAS", help="measure the start with this number of schemas")
    options = parser.parse_args()
    if options.start:
        measure_start(options.start)
        return
    results = {}
    with tempfile.TemporaryDirectory() as directory, start_ottla(Path(directory)) as broker:
        port = free_port()
        command = [sys.executable, "-m", "ottla", "registry", "serve", "-b", broker.bootstrap, "--listen", str(port)]
        with running("ottla", [*command, "--log-level", "error"], {}, port, registers) as registry:
            results["ottla"] = measure(registry, options.seconds, options.connections)
        if options.karapace:
            port = free_port()
            environment = {
                "KARAPACE_BOOTSTRAP_URI": broker.bootstrap,
                "KARAPACE_HOST": "127.0.0.1",
                "KARAPACE_PORT": str(port),
                "KARAPACE_KARAPACE_REGISTRY": "true",
                "KARAPACE_TOPIC_NAME": "_schemas_of_karapace",
                "KARAPACE_GROUP_ID": "karapace",
                "KARAPACE_LOG_LEVEL": "ERROR",
                "PYTHONPATH": str(Path(options.karapace) / "src"),
            }
            command = [options.karapace_python, "-m", "karapace"]
            with running("karapace", command, environment, port, registers) as registry:
                results["karapace"] = measure(registry, options.seconds, options.connections)
    print_ratios(results)


if __name__ == "__main__":
    main()
