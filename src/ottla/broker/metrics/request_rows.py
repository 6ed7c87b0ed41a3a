"""Metrics of requests, by API. Fetches are counted together, and apart for consumers and followers, as in Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metrics import families as f
from ottla.broker.metrics.requests import FETCH, FOLLOWER_FETCH, QUANTILES, quantiles
from ottla.common.slices import Slices
from ottla.protocol import registry

if TYPE_CHECKING:
    from ottla.broker.metrics.requests import ApiTimes, RequestTimes, Times
    from ottla.metrics.exposition import Samples
    from ottla.metrics.family import Family

# The JMX exporter makes "0.50" of the attribute 50thPercentile.
_LABELS: Final = {quantile: f"{quantile:.2f}" if quantile < 0.99 else str(quantile) for quantile in QUANTILES}


def add_requests(samples: Samples, times: RequestTimes) -> Slices[None]:
    """Add the count and the times of each API that was requested."""
    for name, keys in _rows(times):
        count = sum(map(times.count, keys))
        waiting = sum(times.waiting[key] for key in keys)
        label = f'request="{name}"'
        samples.add(f.REQUESTS, count, f"{{{label}}}")
        apis = [times.by_key[key] for key in keys if key in times.by_key]
        yield from _add_times(samples, label, _Counts(count, max(count - waiting, 0)), apis)


def _rows(times: RequestTimes) -> Iterator[tuple[str, list[int]]]:
    """Yield the names of Kafka and the keys whose requests they count."""
    is_fetched = FETCH in times.by_key or FOLLOWER_FETCH in times.by_key
    keys = {*times.by_key} - {FOLLOWER_FETCH}
    for key in sorted({*keys, FETCH} if is_fetched else keys):
        if key == FETCH:
            yield "Fetch", [FETCH, FOLLOWER_FETCH]
            yield "FetchConsumer", [FETCH]
            yield "FetchFollower", [FOLLOWER_FETCH]
        else:
            yield registry.API[key].name, [key]


class _Counts(NamedTuple):
    """How many requests were handled, and how many of them are complete."""

    handled: int
    completed: int


def _add_times(samples: Samples, label: str, counts: _Counts, apis: list[ApiTimes]) -> Slices[None]:
    at_once, total = [api.at_once for api in apis], [api.total for api in apis]
    throttle = [api.throttle for api in apis]
    handled, completed = _recent(at_once), _recent(at_once) + _recent(total)
    _add(samples, f.LOCAL_TIME, label, counts.handled, [*at_once, *(api.local for api in apis)])
    yield
    # A request that did not wait, or was not throttled, counts with 0. One that still waits does not count yet.
    _add(samples, f.REMOTE_TIME, label, counts.completed, [api.remote for api in apis], zeros=handled)
    _add(samples, f.THROTTLE_TIME, label, counts.completed, throttle, zeros=max(completed - _recent(throttle), 0))
    _add(samples, f.TOTAL_TIME, label, counts.completed, [*at_once, *total])
    yield


def _recent(several: list[Times]) -> int:
    return sum(times.recent for times in several)


def _add(samples: Samples, family: Family, label: str, count: int, several: list[Times], zeros: int = 0) -> None:
    """Add the times of one kind, and `zeros` more times of 0."""
    lines, name = samples.of(family), family.name
    lines.extend(
        f'{name}{{{label},quantile="{_LABELS[quantile]}"}} {value}'
        for quantile, value in quantiles(several, zeros=zeros)
    )
    lines.append(f"{name}_sum{{{label}}} {sum(times.total_ns for times in several) / 1e6}")
    lines.append(f"{name}_count{{{label}}} {count}")
