"""Pages of the web console in a cluster with many topics: `python -m benchmarks.console [--topics N] [--rounds N]`.

A broker has 10,000 topics with 12,000 partitions, one of them with records of 1 MB, and 500 groups. A console in a
process of its own answers requests over HTTP, one at a time, as a person would send them. For each page: the first
answer, the median and the 99th percentile of the others in milliseconds, the size of the HTML, and the CPU time of
the console.

The first answer of a page may have to read the whole cluster; later ones use what the console read some seconds ago.
`--bootstrap` measures a cluster that was filled before.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from benchmarks.brokers import cpu_times, resident_mb, start_ottla
from ottla.clients import Admin, Producer
from ottla.clients.admin import NewTopic
from ottla.common.ids import TopicPartition

# Each partition has an open file, and many machines allow a process 20,000.
FEW: Final = 1
MORE: Final = 3
GROUPS: Final = 500
LARGE: Final = "large-records"
LARGE_RECORDS: Final = 100
START_S: Final = 60.0
# The pause lets the cached state of a cluster become old, as between the clicks of a person.
PAUSE_S: Final = 0.1
PAGES: Final = (
    "/",
    "/topics",
    "/topics?page=150",
    "/topics?filter=topic-00777",
    "/topics/topic-00777",
    "/topics/topic-00777/settings",
    "/topics/topic-00777/groups",
    "/topics/topic-00777/messages",
    f"/topics/{LARGE}/messages",
    f"/topics/{LARGE}/messages?limit=500",
    f"/topics/{LARGE}/messages/0/7",
    "/groups",
    "/group?id=group-7",
    "/dead-letters",
    "/transactions",
    "/nodes",
    "/nodes/quorum",
    "/nodes/moves",
)


class Times(NamedTuple):
    """The answers of one page."""

    first_ms: float
    p50_ms: float
    p99_ms: float
    size_kb: float
    cpu_ms: float


def fill(bootstrap: str, topics: int) -> None:
    """Create the topics, the large records and the groups."""
    names = [f"topic-{number:05}" for number in range(topics - 1)]
    new = [NewTopic(name, MORE if number % 10 == 7 else FEW) for number, name in enumerate(names)]
    with Admin(bootstrap, request_timeout_ms=60_000, default_api_timeout_ms=120_000) as admin:
        for start in range(0, len(new), 500):
            admin.create_topics(new[start : start + 500])
        admin.create_topic(LARGE, partitions=1)
        for number in range(GROUPS):
            offsets = {TopicPartition(names[number % len(names)], 0): 0}
            admin.alter_group_offsets(f"group-{number}", offsets)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(LARGE_RECORDS):
            producer.send(LARGE, bytes([97 + number % 26]) * 1_000_000, b"%d" % number).result(START_S)


@contextlib.contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """Run a console; its URL and its process."""
    command = [sys.executable, "-m", "ottla.cli.main", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("console="), process.pid
        finally:
            process.terminate()
            process.wait(START_S)


def measure(http: httpx.Client, pid: int, path: str, rounds: int) -> Times:
    """Request one page again and again."""
    times_ms, size = [], 0
    before_s = 0.0
    for number in range(rounds + 1):
        if number == 1:
            before_s = sum(cpu_times(pid))
        began = time.perf_counter()
        answer = http.get(path)
        times_ms.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        size = len(answer.content)
        time.sleep(PAUSE_S)
    cpu_ms = (sum(cpu_times(pid)) - before_s) * 1000 / rounds
    later = times_ms[1:]
    p99_ms = statistics.quantiles(later, n=100, method="inclusive")[98]
    return Times(times_ms[0], statistics.median(later), p99_ms, size / 1000, cpu_ms)


def run(bootstrap: str, rounds: int, pages: tuple[str, ...]) -> None:
    """Measure each page, and print a row for it."""
    with console(bootstrap) as (url, pid), httpx.Client(base_url=url, timeout=START_S) as http:
        print(f"{'page':44} {'first':>7} {'p50':>7} {'p99':>7} {'KB':>8} {'CPU':>6}   (ms)")
        for path in pages:
            found = measure(http, pid, path, rounds)
            print(
                f"{path:44} {found.first_ms:7.0f} {found.p50_ms:7.1f} {found.p99_ms:7.0f} {found.size_kb:8.1f} "
                f"{found.cpu_ms:6.1f}",
                flush=True,
            )
        print(f"resident MB of the console: {resident_mb(pid):.0f}")


def main() -> None:
    """Start a broker if none is given, fill it, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--bootstrap", help="a cluster that this benchmark filled before")
    parser.add_argument("--page", action="append", help="only this address; may be repeated")
    given = parser.parse_args()
    pages = tuple(given.page or PAGES)
    if given.bootstrap:
        run(given.bootstrap, given.rounds, pages)
        return
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, start_ottla(Path(directory)) as broker:
        began = time.perf_counter()
        fill(broker.bootstrap, given.topics)
        print(f"{broker.bootstrap}: {given.topics:,} topics after {time.perf_counter() - began:.0f} s", flush=True)
        run(broker.bootstrap, given.rounds, pages)


if __name__ == "__main__":
    main()
