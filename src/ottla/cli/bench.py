"""Measure a cluster with Ottla's clients: the rates of producing and consuming, and the end-to-end latency.

The figures depend on the machine, the network and the settings. The CPU time is this process's.
"""

from __future__ import annotations

import time

import click

from ottla import clients
from ottla.cli.commands import Argument, Group, Option, Options
from ottla.cli.connect import client_settings, connection_options
from ottla.cli.output import Column, Output, output_options, plain
from ottla.cli.produce import existing_topics, sending_options, sending_settings
from ottla.common.ids import TopicPartition
from ottla.tools.benchmark import (
    MOST_SAMPLES,
    Load,
    Measurement,
    arrow_poll,
    await_value,
    random_values,
    read_all,
    record_poll,
    send_all,
)

COMMAND = Group(
    __doc__,
    """
    ottla bench produce test --create --records 100000 --size 100
    ottla bench consume test
    ottla bench e2e test --records 1000
    """,
)
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
    values = random_values(options.size)
    keys = [b"key-%d" % number for number in range(options.keys)]
    load = Load(options.topic, options.records, values, keys, options.rate)
    every = max(1, options.records // MOST_SAMPLES)
    with clients.Producer(sending_settings(options)) as producer:
        producer.send(options.topic, b"warm-up").result()
        run = Measurement(options.records, shown=not options.json)
        run.complete(lambda: send_all(run, producer, load, every))
        was_flushed = run.complete(producer.flush)
        run.stop()
        if not was_flushed:
            producer.close(0.0)  # after a second interrupt the end of the block must not wait again
    # If some records have not ended, the number of acknowledged ones is estimated from the measured ones.
    sent = run.records
    run.records = sent - run.failed if was_flushed else min(sent, len(run.latencies) * every)
    run.size = run.records * options.size
    return _report(run, options)


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
        poll = arrow_poll(consumer) if options.arrow else record_poll(consumer)
        run = Measurement(wanted, shown=not options.json)
        run.complete(lambda: read_all(run, poll, wanted, lambda: all(consumer.position(tp) >= end[tp] for tp in tps)))
        run.stop()
    return _report(run, options)


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
    values = random_values(max(options.size, 8))
    settings = {"linger.ms": 0, **sending_settings(options)}
    with clients.Producer(settings) as producer, _reader(options) as consumer:
        partition = producer.send(options.topic, b"warm-up").result().partition
        consumer.assign([(options.topic, partition)])
        consumer.seek_to_end()
        consumer.position((options.topic, partition))
        run = Measurement(options.records, shown=not options.json)

        def round_trips() -> None:
            """Send each record and wait until the consumer has read it."""
            for number in range(options.records):
                value = b"%08d" % number + values[number % len(values)][8:]
                sent_s = time.perf_counter()
                producer.send(options.topic, value, partition=partition).result()
                await_value(consumer, value)
                run.latencies.append(time.perf_counter() - sent_s)
                run.bar.advance(1, len(value))

        run.complete(round_trips)
        run.stop()
    run.records = len(run.latencies)
    run.size = run.records * len(values[0])
    return _report(run, options)


def _reader(options: Options) -> clients.Consumer:
    settings = client_settings(options, "consumer")
    settings["allow.auto.create.topics"] = False
    settings["enable.auto.commit"] = False
    settings.setdefault("max.partition.fetch.bytes", 4 << 20)
    return clients.Consumer(settings)


def _report(run: Measurement, options: Options) -> int:
    """Print the figures; returns the exit code: 130 after an interrupt, 1 if records failed, else 0."""
    row = run.figures()
    Output(options).record(row, [_column(name) for name in row])
    return 130 if run.interrupted else 1 if run.failed else 0


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
