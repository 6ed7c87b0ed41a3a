"""The number of requests and their times, by API. `Meter` fills them in.

A request has a local time, in which it is decoded and handled at once, and may have a remote time, in which it waits:
for records, followers, members, the disk, or its next slice. Every request is counted, and some are measured.

Quantiles come from histograms whose buckets grow by 19 % on average, over the last one to two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
# Times of 64 ns and more, in buckets that divide each power of two by 4.
_OCTAVES: Final = 40
_BUCKETS: Final = _OCTAVES * 4
EXACT: Final = 1_024
"""The requests of an API that are measured in a window before only a part of them is."""
FETCH: Final = 1
FOLLOWER_FETCH: Final = 256
"""In place of an API key: fetches of replicas, of which Kafka has metrics of their own. `FETCH` has the others."""
_KEYS: Final = FOLLOWER_FETCH + 1


class Times:
    """A histogram of times in nanoseconds: all since the start, and the last two windows."""

    __slots__ = ("before", "count_before", "now", "total_ns")

    def __init__(self) -> None:
        self.total_ns = 0
        self.now = [0] * (_BUCKETS + 1)
        """The window that is filled."""
        self.before = [0] * (_BUCKETS + 1)
        self.count_before = 0
        """How many times are in no window any more, or in `before`."""

    def record(self, time_ns: int, weight: int = 1) -> None:
        """Count a time, `weight` times."""
        octave = time_ns.bit_length()
        quarter = time_ns >> octave - 3 & 3 if octave >= 3 else 0
        self.now[(octave << 2) + quarter if octave < _OCTAVES else _BUCKETS] += weight
        self.total_ns += time_ns * weight

    @property
    def count(self) -> int:
        """How many times were recorded."""
        return self.count_before + sum(self.now)

    @property
    def recent(self) -> int:
        """How many times are in the last two windows."""
        return sum(self.now) + sum(self.before)

    def rotate(self) -> None:
        """Begin a new window."""
        self.count_before += sum(self.now)
        self.before, self.now = self.now, [0] * (_BUCKETS + 1)


def quantiles(
    several: Iterable[Times], wanted: Iterable[float] = QUANTILES, zeros: int = 0
) -> Iterator[tuple[float, float]]:
    """Yield (quantile, milliseconds) of the last windows of several histograms together, and of `zeros` more times.

    The value is the upper end of a bucket. Without a time in these windows, it is 0.
    """
    windows = [window for times in several for window in (times.now, times.before)]
    counts = [sum(column) for column in zip(*windows, strict=True)] or [0] * (_BUCKETS + 1)
    total, seen, bucket = sum(counts) + zeros, zeros, -1
    for quantile in wanted:
        while bucket < _BUCKETS and seen < quantile * total:
            bucket += 1
            seen += counts[bucket]
        yield quantile, 0.0 if bucket < 0 else _upper_ns(bucket) / 1e6


def _upper_ns(bucket: int) -> int:
    """Return the upper end of a bucket."""
    octave, quarter = divmod(bucket, 4)
    return 1 << octave if octave < 3 else (5 + quarter) << octave - 3


class ApiTimes:
    """The times of one API. `total` and `local` of a request that did not wait are the same, and only in `at_once`.

    A request that waits is in `local`, and in `remote` and `total` when its response is complete.
    """

    __slots__ = ("at_once", "local", "remote", "throttle", "total")

    def __init__(self) -> None:
        self.at_once = Times()
        self.local, self.remote, self.total, self.throttle = Times(), Times(), Times(), Times()

    def rotate(self) -> None:
        """Begin a new window."""
        for times in (self.at_once, self.local, self.remote, self.total, self.throttle):
            times.rotate()


class RequestTimes:
    """The requests and the times of each API, by its key."""

    def __init__(self) -> None:
        self.by_key: dict[int, ApiTimes] = {}
        self.counts = [0] * _KEYS
        """The requests of this window, by API key."""
        self.waiting = [0] * _KEYS
        """The requests whose responses are not complete, by API key."""
        self._before = [0] * _KEYS

    def of(self, key: int) -> ApiTimes:
        """The times of an API."""
        times = self.by_key.get(key)
        if times is None:
            times = self.by_key[key] = ApiTimes()
        return times

    def count(self, key: int) -> int:
        """How many requests an API had, with those that closed their connection."""
        return self._before[key] + self.counts[key]

    def rotate(self) -> None:
        """Begin a new window."""
        for times in self.by_key.values():
            times.rotate()
        for key, count in enumerate(self.counts):
            self._before[key] += count
            self.counts[key] = 0
