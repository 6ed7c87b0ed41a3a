"""Metrics of clients: what each user and client id uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.common.slices import Slices
from ottla.metrics.exposition import labelled

if TYPE_CHECKING:
    from ottla.broker.metrics.client_usage import ClientUsages
    from ottla.metrics.exposition import Samples

_AT_ONCE: Final = 50
_PAUSES: Final = (f.PRODUCE_THROTTLE, f.FETCH_THROTTLE, f.REQUEST_THROTTLE)


def add_clients(samples: Samples, clients: ClientUsages) -> Slices[None]:
    """Add the counters and rates of each client."""
    for number, usage in enumerate(clients):
        user, client_id = usage.name
        labels, rates = labelled(user=user, client_id=client_id), usage.rates
        samples.add(f.CLIENT_PRODUCED, usage.produced_bytes, labels)
        samples.add(f.CLIENT_FETCHED, usage.fetched_bytes, labels)
        samples.add(f.CLIENT_REQUEST_TIME, usage.request_ns / 1e9, labels)
        samples.add(f.CLIENT_THROTTLED, sum(each.seconds for each in usage.pauses), labels)
        samples.add(f.CLIENT_CONNECTIONS, usage.connections, labels)
        samples.add(f.PRODUCE_RATE, rates.produce_bytes, labels)
        samples.add(f.FETCH_RATE, rates.fetch_bytes, labels)
        samples.add(f.REQUEST_SHARE, rates.request_percent, labels)
        for family, pause_ms in zip(_PAUSES, rates.pause_ms, strict=True):
            samples.add(family, pause_ms, labels)
        if number % _AT_ONCE == 0:
            yield
