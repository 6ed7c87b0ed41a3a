"""The races. Each drives one broker with records of one kind and returns its figures by name."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from benchmarks import lifecycle, log_size, many_clients, page_cache, paired, shares, tls, tools, transactions
from benchmarks.brokers import Broker
from benchmarks.filling import NO_SETTINGS
from benchmarks.filling import fill as fill  # noqa: PLC0414 - for the races of clients
from benchmarks.wire import DEADLINE_S, Figures, new_topic, passing_topic, produce_frame, receive


@dataclass(frozen=True)
class Race:
    """`aims` are what Ottla's figure over Kafka's must reach: at least, where more is better, else at most."""

    run: Callable[[Broker, float], Figures]
    aims: Mapping[str, float]
    warm_up_s: float = 0
    """For how long a JVM runs the race before it counts: it compiles what is called often, which takes a while."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The most that a figure of Ottla itself may be, whatever Kafka's is."""
    once: bool = False
    """Takes long, or starts a broker of its own; one run, without a warm-up."""
    by_name: bool = False
    """Only run if it is named: `brokers` takes a quarter of an hour without it."""

    def warm_up(self, broker: Broker, scale: float) -> None:
        """Run it once, and again for as long as a JVM gets better by it."""
        end = time.monotonic() + (self.warm_up_s * scale if broker.name == "kafka" else 0)
        self.run(broker, scale)
        while time.monotonic() < end:
            self.run(broker, scale)

    @property
    def title(self) -> str:
        """One line."""
        return (self.run.__doc__ or "").splitlines()[0]


def _produce(size: int, acks: str, count: int, *, secured: bool = False) -> Callable[[Broker, float], Figures]:
    def race(broker: Broker, scale: float) -> Figures:
        records = int(count * scale)
        page_cache.touch(broker, records * size / 1e6)
        with passing_topic(broker, 6) as topic:
            cpu, start = broker.cpu_seconds(), time.perf_counter()
            fill(broker, topic, records, size, acks, broker.secured if secured else NO_SETTINGS)
            seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
        megabytes = records * size / 1e6
        return {"MB/s": megabytes / seconds, "MB per broker-CPU-second": megabytes / max(used, 0.01)}

    race.__doc__ = (
        f"librdkafka produces records of {size} B, acks={acks}, 6 partitions{', SASL_SSL' if secured else ''}"
    )
    return race


def consume(broker: Broker, scale: float) -> Figures:
    """librdkafka consumes 1 KB records from the page cache, 6 partitions"""
    with passing_topic(broker, 6) as topic:
        return _consumed(broker, topic, int(400_000 * scale), NO_SETTINGS)


def consume_secured(broker: Broker, scale: float) -> Figures:
    """librdkafka consumes 1 KB records from the page cache, 6 partitions, SASL_SSL"""
    with passing_topic(broker, 6) as topic:
        return _consumed(broker, topic, int(400_000 * scale), broker.secured)


def _consumed(broker: Broker, topic: str, records: int, client: Mapping[str, str]) -> Figures:
    fill(broker, topic, records, 1000, "1")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.max.messages.kbytes": 200_000,
            **client,
        }
    )
    consumer.subscribe([topic])
    got, cpu, start, deadline = 0, broker.cpu_seconds(), 0.0, time.monotonic() + DEADLINE_S
    while got < records and time.monotonic() < deadline:
        messages = consumer.consume(10_000, 1.0)
        if messages and not got:
            start = time.perf_counter()
        got += len(messages)
    seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    consumer.close()
    if got < records:
        raise RuntimeError(f"{broker.name} gave {got} of {records} records")
    return {"MB/s": records / 1e3 / seconds, "MB per broker-CPU-second": records / 1e3 / max(used, 0.01)}


def _single(acks: int) -> Callable[[Broker, float], Figures]:
    def race(broker: Broker, scale: float) -> Figures:
        topic = new_topic(broker, 1)
        frame, count = produce_frame(topic, acks), int(10_000 * scale)
        times: list[float] = []
        with socket.create_connection(broker.address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            cpu = broker.cpu_seconds()
            for _ in range(count):
                start = time.perf_counter()
                connection.sendall(frame)
                receive(connection)
                times.append(time.perf_counter() - start)
            used = broker.cpu_seconds() - cpu
        cuts = statistics.quantiles(times, n=100)
        return {"p50 ms": cuts[49] * 1e3, "p99 ms": cuts[98] * 1e3, "broker CPU us per request": used / count * 1e6}

    race.__doc__ = f"one 100 B record at a time over one connection, acks={acks}"
    return race


RACES: dict[str, Race] = {
    "produce-100": Race(_produce(100, "1", 1_000_000), {"MB/s": 1, "MB per broker-CPU-second": 3}, warm_up_s=20),
    "produce-100-all": Race(_produce(100, "all", 1_000_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "produce-1k": Race(_produce(1000, "1", 400_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "produce-1k-all": Race(_produce(1000, "all", 400_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "acks-100": Race(paired.acks_after_gigabytes(100, 2_000_000), {}, limits=paired.LIMITS, once=True, by_name=True),
    "acks-1k": Race(paired.acks_after_gigabytes(1000, 400_000), {}, limits=paired.LIMITS, once=True, by_name=True),
    "perf-100": Race(tools.produce_perf(100, "1", 2_000_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "perf-1k": Race(tools.produce_perf(1000, "1", 600_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "perf-1k-all": Race(tools.produce_perf(1000, "all", 600_000), {"MB/s": 1, "MB per broker-CPU-second": 3}),
    "consume": Race(consume, {"MB/s": 1, "MB per broker-CPU-second": 2}),
    "consume-perf": Race(tools.consume_perf, {"MB/s": 1, "MB per broker-CPU-second": 2}),
    "secured-produce": Race(
        _produce(1000, "1", 200_000, secured=True), {"MB per broker-CPU-second": 1.5}, warm_up_s=15, by_name=True
    ),
    "secured-consume": Race(consume_secured, {"MB per broker-CPU-second": 1.5}, warm_up_s=15, by_name=True),
    "tls-handshakes": Race(tls.handshakes, {"handshakes per broker-CPU-second": 1}, warm_up_s=10, by_name=True),
    "tls-idle": Race(tls.idle_connections, {"MB in all": 0.2}, once=True, by_name=True),
    "single": Race(_single(1), {"p50 ms": 1, "p99 ms": 1, "broker CPU us per request": 0.7}),
    "single-all": Race(_single(-1), {"p50 ms": 1, "p99 ms": 1, "broker CPU us per request": 0.7}),
    "pipelined": Race(many_clients.pipelined(1), {"requests per broker-CPU-second": 1}, warm_up_s=25),
    "pipelined-8": Race(many_clients.pipelined(8), {"requests per broker-CPU-second": 1}, warm_up_s=8),
    "pipelined-64": Race(many_clients.pipelined(64), {"requests per broker-CPU-second": 1}, warm_up_s=8),
    "e2e": Race(tools.end_to_end, {"average ms": 1, "p99 ms": 1}),
    "idle": Race(many_clients.idle_consumers, {"% of a core": 1, "resident MB": 0.2}, once=True),
    "connections": Race(many_clients.idle_connections, {"% of a core": 1}, once=True),
    "flat": Race(
        log_size.flat,
        {f"{kind} p99 ms, {size}": 1 for kind in ("produce", "fetch") for size in ("empty", "1 GB", "50 GB")},
        limits={f"{kind} p99, {size} over empty": 1.2 for kind in ("produce", "fetch") for size in ("1 GB", "50 GB")},
        once=True,
    ),
    "segments": Race(
        log_size.many_segments,
        {
            "seconds to start": 1,
            "resident MB after the start": 1,
            "ms of the first look for a timestamp": 1,
            "look for a timestamp p99 ms": 1,
            "fetch of any offset p99 ms": 1,
            "resident MB after lookups": 1,
        },
        once=True,
        by_name=True,
    ),
    "groups": Race(many_clients.groups(many_clients.DEFAULT_DELAY_MS), {"seconds": 1}, once=True),
    "groups-0": Race(many_clients.groups(0), {"seconds": 1}, once=True),
    "groups-consumer": Race(
        many_clients.consumer_groups, {"seconds to join": 1, "seconds after a leave": 1}, once=True, by_name=True
    ),
    **{
        f"transactions-{name}-{records}": Race(
            transactions.transactional(size, records, count), transactions.AIMS, warm_up_s=15
        )
        for name, size in (("100", 100), ("1k", 1000))
        for records, count in ((10, 500), (1000, 100))
    },
    "share": Race(
        shares.share_group,
        {"records/s": 1, "records per broker-CPU-second": 2},
        warm_up_s=20,
        by_name=True,
    ),
    "start": Race(lifecycle.start, {"seconds": 0.05}, once=True),
    "memory": Race(
        lifecycle.memory,
        {
            "resident MB after the start": 0.2,
            "resident MB with 1,000 partitions": 0.2,
            "resident MB after load": 0.2,
            "seconds to create 1,000 partitions": 1,
        },
        once=True,
    ),
    "many": Race(
        lifecycle.many,
        {
            "resident MB with 10,000 partitions": 0.2,
            "seconds to create 10,000 partitions": 1,
            "seconds to start with them": 1,
        },
        once=True,
    ),
    "restart": Race(lifecycle.restart(1000, 16, 1), {"seconds": 1}, once=True),
    "restart-small": Race(lifecycle.restart(100, 1, 0.5), {"seconds": 1}, once=True, by_name=True),
}
