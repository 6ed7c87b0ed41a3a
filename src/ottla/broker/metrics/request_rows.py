"""Metrics of requests, by API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.metrics import families as f
from ottla.broker.metrics.requests import quantiles
from ottla.common.slices import Slices
from ottla.protocol import registry

if TYPE_CHECKING:
    from ottla.broker.metrics.exposition import Samples
    from ottla.broker.metrics.families import Family
    from ottla.broker.metrics.requests import RequestTimes, Times


def add_requests(samples: Samples, times: RequestTimes) -> Slices[None]:
    """Add the count and the times of each API that was requested."""
    for key, of_api in sorted(times.by_key.items()):
        count = times.count(key)
        label = f'request="{registry.API[key].name}"'
        samples.add(f.REQUESTS, count, f"{{{label}}}")
        _add(samples, f.LOCAL_TIME, label, (of_api.recent, count), of_api.at_once, of_api.local)
        yield
        _add(samples, f.REMOTE_TIME, label, (of_api.recent, count), of_api.remote)
        _add(samples, f.THROTTLE_TIME, label, (of_api.recent, count), of_api.throttle)
        _add(samples, f.TOTAL_TIME, label, (of_api.recent, count), of_api.at_once, of_api.total)
        yield


def _add(samples: Samples, family: Family, label: str, counts: tuple[int, int], *several: Times) -> None:
    """Add the times of one kind; a request without such a time counts with 0. `counts` are recent and all requests."""
    lines, name = samples.of(family), family.name
    recent, count = counts
    zeros = max(recent - sum(times.recent for times in several), 0)
    lines.extend(
        f'{name}{{{label},quantile="{quantile}"}} {value}' for quantile, value in quantiles(several, zeros=zeros)
    )
    lines.append(f"{name}_sum{{{label}}} {sum(times.total_ns for times in several) / 1e6}")
    lines.append(f"{name}_count{{{label}}} {count}")
