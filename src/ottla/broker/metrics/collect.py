"""One scrape: reads the parts of the node in slices, so that no request waits for all of it.

A scrape sees each partition at a slightly different time, like the scrape of any broker under load.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.broker.metrics import (
    client_rows,
    cluster_rows,
    coordinator_rows,
    mirror_rows,
    partition_rows,
    process_rows,
    request_rows,
    telemetry_rows,
)
from ottla.broker.metrics import families as f
from ottla.broker.metrics.transaction_ages import TransactionAges
from ottla.common.slices import Slices
from ottla.metrics.exposition import Samples, labelled

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.metrics.lag_rows import GroupLag
    from ottla.broker.metrics.loop_delay import LoopDelay
    from ottla.broker.metrics.meter import Meter
    from ottla.network.server import Server

STARTING, RUNNING, STOPPING = 1, 3, 6
"""States of a broker, by Kafka's numbers."""


@dataclass(slots=True)
class Sources:
    """The parts that a scrape reads."""

    broker: Broker
    meter: Meter
    loop_delay: LoopDelay
    started_s: float
    lag: GroupLag
    network: Server | None = None
    state: int = STARTING
    scrape_s: float = 0.0
    """How long the previous scrape took."""
    descriptors: process_rows.Descriptors = field(default_factory=process_rows.Descriptors)
    transactions: TransactionAges = field(default_factory=TransactionAges)


def collect(sources: Sources, content_type: str) -> Slices[list[bytes]]:
    """Return the body of a scrape in parts."""
    began_s = time.monotonic()
    samples = Samples(f.FAMILIES)
    broker = sources.broker
    samples.add(f.INFO, 1, labelled(version=__version__, node_id=broker.node_id))
    samples.add(f.BROKER_STATE, sources.state)
    samples.add(f.SCRAPE_SECONDS, sources.scrape_s)
    process_rows.add_process(samples, sources.started_s, sources.descriptors)
    process_rows.add_loop(samples, sources.loop_delay, broker.schedulers.worker.unfinished)
    if sources.network is not None:
        process_rows.add_connections(samples, sources.network)
    yield from request_rows.add_requests(samples, sources.meter.times)
    yield from client_rows.add_clients(samples, sources.meter.clients)
    yield from partition_rows.add_topics(samples, broker.partitions)
    yield from partition_rows.add_partitions(samples, broker, sources.transactions)
    cluster_rows.add_directories(samples, broker.logs)
    cluster_rows.add_quorum(samples, broker.metadata)
    yield from cluster_rows.add_controller(samples, broker.metadata)
    yield from coordinator_rows.add_coordinators(samples, broker.coordinators)
    yield from sources.lag.add_lags(samples)
    yield from mirror_rows.add_mirrors(samples, broker.mirrors)
    if broker.telemetry is not None:
        yield from telemetry_rows.add_clients(samples, broker.telemetry)
    body = yield from samples.render(content_type)
    sources.scrape_s = time.monotonic() - began_s
    return body
