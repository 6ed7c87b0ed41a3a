"""Measure a cluster with Ottla's clients: the rates of producing and consuming, and the end-to-end latency.

The figures depend on the machine, the network and the settings. The CPU time is that of this process.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ottla import clients
from ottla.cli.commands import Argument, Group, Option, Options
from ottla.cli.connect import client_settings, connection_options
from ottla.cli.output import Column, Output, output_options, plain
from ottla.cli.produce import existing_topics, sending_options, sending_settings
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.progress import Progress

COMMAND = Group(
    __doc__,
    """
    ottla bench produce test --create --records 100000 --size 100
    ottla bench consume test
    ottla bench e2e test --records 1000
    """,
)
_SAMPLES = 200_000  # the most latencies that one run measures
_PERCENTILES = (50.0, 95.0, 99.0, 99.9)
_DISTINCT_VALUES, _VALUES_BYTES = 512, 64 << 20  # of large values fewer different ones
_COUNT = click.IntRange(min=0)
_SIZE = click.IntRange(min=0, max=2**31 - 1)  # the largest length of a value


def _load_parameters(records: int) -> list[click.Parameter]:
    """Return the parameters for the topic, the number of records, and their size."""
    return [
        Argument("topic", "TOPIC"),
        Option("--records N", "number of records", type=_COUNT, default=records, show_default=True),
        Option("--size BYTES", "size of a value", type=_SIZE, default=100, show_default=True),
    ]


@COMMAND.verb(
    "produce",
    *_load_parameters(records=1_000_000),
    Option("--keys N", "number of different keys; default: none", type=_COUNT, default=0),
    *sending_options(),
    *output_options(),
    *connection_options("producer"),
    examples="""
    ottla bench produce test --create        a million records of 100 bytes
    ottla bench produce test --rate 10000 --records 20000     a steady load
    ottla bench produce test --records 100000 -z zstd -X linger.ms=20
    ottla bench produce test --records 9999 --json | jq .records_per_second
    """,
)
def _produce(options: Options) -> int:
    """Send records, as fast as possible or at a rate."""
    if not options.create:
        existing_topics(options)
    values = _values(options.size)
    every = max(1, options.records // _SAMPLES)
    with clients.Producer(sending_settings(options)) as producer:
        producer.send(options.topic, b"warm-up").result()
        run = _Run(options, options.records)
        run.complete(lambda: _send_all(run, producer, options, values, every))
        was_flushed = run.complete(producer.flush)
        run.stop()
        if not was_flushed:
            producer.close(0.0)  # after a second interrupt the end of the block must not wait again
    # If some records have not ended, the number of acknowledged ones is estimated from those that were measured.
    sent = run.records
    run.records = sent - run.failed if was_flushed else min(sent, len(run.latencies) * every)
    run.size = run.records * options.size
    return run.report()


class _Run:
    """The times, counts and latencies of one measurement. An interrupt ends it early; the figures up to then count."""

    def __init__(self, options: Options, total: int) -> None:
        self._options = options
        self.bar = Progress("records", total=total, shown=not options.json)
        self.latencies = array("d")
        self.records = self.size = self.failed = 0
        self.first_record_ms: float | None = None
        self.took_s = self.cpu_s = 0.0
        self.interrupted = False
        self.start_s, self._start_cpu_s = time.perf_counter(), time.process_time()

    def complete(self, work: Callable[[], object]) -> bool:
        """Run a part of the measurement; returns False if an interrupt ended it."""
        try:
            work()
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        finally:
            self.bar.clear()
        return True

    def stop(self) -> None:
        """Set the elapsed time and the CPU time."""
        self.took_s, self.cpu_s = time.perf_counter() - self.start_s, time.process_time() - self._start_cpu_s

    def report(self) -> int:
        """Print the figures; returns the exit code: 130 after an interrupt, 1 if records failed, else 0."""
        took_s = self.took_s
        row: dict[str, Any] = {
            "records": self.records,
            "bytes": self.size,
            "seconds": round(took_s, 4),
            "records_per_second": round(self.records / took_s) if took_s else 0,
            "mb_per_second": round(self.size / took_s / 1e6, 2) if took_s else 0.0,
            "cpu_seconds": round(self.cpu_s, 4),
            **(_percentiles(self.latencies) if self.latencies else {}),
        }
        more = {"failed": self.failed, "first_record_ms": self.first_record_ms, "interrupted": self.interrupted}
        row.update({name: value for name, value in more.items() if value})
        Output(self._options).record(row, [_column(name) for name in row])
        return 130 if self.interrupted else 1 if self.failed else 0


def _send_all(run: _Run, producer: Any, options: Options, values: Sequence[bytes], every: int) -> None:
    """Send the records. Measures each `every`-th one from `send` to the acknowledgement."""
    send, topic, rate, clock = producer.send, options.topic, options.rate, time.perf_counter
    keys = [b"key-%d" % number for number in range(options.keys)]
    step = 1024 if rate is None else 1

    def on_delivery(sent_s: float) -> Callable[[Any], None]:
        def done(delivery: Any) -> None:
            if delivery.exception() is None:
                run.latencies.append(clock() - sent_s)
            else:
                run.failed += every  # the records of a batch fail together

        return done

    count = 0
    start_s = clock()
    try:
        for number in range(options.records):
            value = values[number % len(values)]
            key = keys[number % len(keys)] if keys else None
            if number % every == 0:
                send(topic, value, key, callback=on_delivery(clock()))
            else:
                send(topic, value, key)
            count = number + 1
            if number % step == 0:
                run.bar.advance(step, step * options.size)
            if rate is not None and (ahead_s := number / rate - (clock() - start_s)) > 0.001:
                time.sleep(ahead_s)
    finally:
        run.records = count


@COMMAND.verb(
    "consume",
    Argument("topic", "TOPIC"),
    Option("--records N", "end after N records; default: all existing records", type=_COUNT),
    Option("--arrow", "read Arrow batches (needs pyarrow)"),
    *output_options(),
    *connection_options("consumer"),
    examples="""
    ottla bench consume test                          all existing records
    ottla bench consume test --records 100000
    ottla bench consume test --arrow                  as Arrow batches
    """,
)
def _consume(options: Options) -> int:
    """Read the existing records as fast as possible."""
    existing_topics(options)
    with _reader(options) as consumer:
        tps = [TopicPartition(options.topic, partition) for partition in consumer.partitions_of(options.topic)]
        consumer.assign(tps)
        end = consumer.end_offsets(tps)
        first = consumer.beginning_offsets(tps)
        existing = sum(end[tp] - first[tp] for tp in tps)
        consumer.seek_to_beginning()
        wanted = existing if options.records is None else min(options.records, existing)
        poll = _arrow_poll(consumer) if options.arrow else _poll(consumer)
        run = _Run(options, wanted)
        run.complete(lambda: _read_all(run, poll, wanted, lambda: all(consumer.position(tp) >= end[tp] for tp in tps)))
        run.stop()
    return run.report()


def _read_all(run: _Run, poll: Callable[[], tuple[int, int]], wanted: int, at_end: Callable[[], bool]) -> None:
    """Count the records and bytes that polls return."""
    quiet_since_s = run.start_s
    while run.records < wanted:
        count, size = poll()
        now_s = time.perf_counter()
        if count:
            if run.first_record_ms is None:
                run.first_record_ms = round((now_s - run.start_s) * 1e3, 3)
            run.records, run.size, quiet_since_s = run.records + count, run.size + size, now_s
            run.bar.advance(count, size)
        elif now_s - quiet_since_s > 5 or at_end():
            return  # the remaining offsets have no records: markers, or removed by compaction


def _poll(consumer: clients.Consumer) -> Callable[[], tuple[int, int]]:
    def poll() -> tuple[int, int]:
        rows = consumer.poll(1.0, max_records=10_000)
        return len(rows), sum([len(row.value or b"") + len(row.key or b"") for row in rows])

    return poll


def _arrow_poll(consumer: clients.Consumer) -> Callable[[], tuple[int, int]]:
    try:
        import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Failure("--arrow needs pyarrow", "`pip install pyarrow` installs it.", exit_code=2) from error

    def poll() -> tuple[int, int]:
        batch = consumer.poll_arrow(1.0)
        sizes = (pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
        return batch.num_rows, sum(sizes)

    return poll


@COMMAND.verb(
    "e2e",
    *_load_parameters(records=1000),
    *sending_options(with_rate=False),
    *output_options(),
    *connection_options("producer", "consumer"),
    examples="""
    ottla bench e2e test                              1,000 records, one at a time
    ottla bench e2e test --records 100 --acks 1 --json
    """,
)
def _e2e(options: Options) -> int:
    """Send one record at a time and read it back."""
    if not options.create:
        existing_topics(options)
    values = _values(max(options.size, 8))
    settings = {"linger.ms": 0, **sending_settings(options)}
    with clients.Producer(settings) as producer, _reader(options) as consumer:
        partition = producer.send(options.topic, b"warm-up").result().partition
        consumer.assign([(options.topic, partition)])
        consumer.seek_to_end()
        consumer.position((options.topic, partition))
        run = _Run(options, options.records)

        def round_trips() -> None:
            """Send each record and wait until the consumer has read it."""
            for number in range(options.records):
                value = b"%08d" % number + values[number % len(values)][8:]
                sent_s = time.perf_counter()
                producer.send(options.topic, value, partition=partition).result()
                _await(consumer, value)
                run.latencies.append(time.perf_counter() - sent_s)
                run.bar.advance(1, len(value))

        run.complete(round_trips)
        run.stop()
    run.records = len(run.latencies)
    run.size = run.records * len(values[0])
    return run.report()


def _await(consumer: clients.Consumer, value: bytes) -> None:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        if any(record.value == value for record in consumer.poll(1.0)):
            return
    raise Failure("an acknowledged record was not read within 30 s", "Does another client write to the topic?")


def _reader(options: Options) -> clients.Consumer:
    settings = client_settings(options, "consumer")
    settings["allow.auto.create.topics"] = False
    settings["enable.auto.commit"] = False
    settings.setdefault("max.partition.fetch.bytes", 4 << 20)
    return clients.Consumer(settings)


def _values(size: int) -> list[bytes]:
    """Return values that hardly compress: random letters, the same ones in each run."""
    generator = random.Random(1)
    letters = bytes(range(97, 123)) + bytes(range(65, 91)) + b"0123456789-_"
    count = max(1, min(_DISTINCT_VALUES, _VALUES_BYTES // max(size, 1)))
    return [bytes(generator.choices(letters, k=size)) for _ in range(count)]


def _percentiles(latencies: Sequence[float]) -> Mapping[str, float]:
    ordered = sorted(latencies)
    row = {
        f"p{percent:g}_ms".replace(".", "_"): ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
        for percent in _PERCENTILES
    }
    row["max_ms"] = ordered[-1]
    return {name: round(value * 1000, 3) for name, value in row.items()}


_HEADINGS = {
    "seconds": "took",
    "records_per_second": "records/s",
    "mb_per_second": "MB/s",
    "cpu_seconds": "CPU here",
    "first_record_ms": "first record",
    "p99_9_ms": "latency p99.9",
}


def _column(name: str) -> Column:
    default = f"latency {name.removesuffix('_ms')}" if name.endswith("_ms") else name
    return Column(name, _HEADINGS.get(name, default), lambda value: _shown(name, value))


def _shown(name: str, value: float) -> str:
    if name == "interrupted":
        return plain(value)
    if name.endswith("_ms"):
        return f"{value:,.3f} ms"
    return f"{value:,.3f} s" if name.endswith("seconds") else f"{value:,}"
