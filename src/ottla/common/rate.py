"""Rates over the last seconds and token buckets, for quotas. KIP-13, KIP-73, KIP-113, KIP-599.

Both say how long traffic has to pause until it is within its limit. A rate is a limit for the average: a burst is
followed by a pause. Times are of the monotonic clock, in milliseconds; limits are per second.
"""

from __future__ import annotations

import math
from collections import deque

UNLIMITED = 2**63 - 1
# As long as the field `throttle_time_ms` can say.
LONGEST_WAIT_MS = 2**31 - 1


class SampledRate:
    """The sum of the last `samples` times `sample_ms`, as Kafka's SampledStat, over the time since the oldest sample.

    That time is at least one sample. With `least_samples` it has as many whole samples, so that the traffic after a
    silence may be a burst (as Kafka's Rate; without them, as its SimpleRate).
    """

    __slots__ = ("_least_ms", "_most_samples", "_sample_ms", "_samples", "_span_ms", "_sum")

    def __init__(self, samples: int = 11, sample_ms: int = 1000, *, least_samples: int = 0) -> None:
        self._sample_ms = sample_ms
        self._span_ms = samples * sample_ms
        self._least_ms = least_samples * sample_ms
        # One more than are measured: the oldest one overlaps the beginning of the span.
        self._most_samples = samples + 1
        # The beginning, the last record and the sum of each sample, oldest first; `_sum` is of all.
        self._samples: deque[tuple[int, int, float]] = deque()
        self._sum = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`; a negative value takes back what was counted before."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._sample_ms:
            began_ms, _, before = samples.pop()
            samples.append((began_ms, now_ms, before + value))
        else:
            samples.append((now_ms, now_ms, value))
            if len(samples) > self._most_samples:
                self._sum -= samples.popleft()[2]
        self._sum += value

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be counted so that the rate falls to `limit`; 0 if the rate is within it."""
        self._expire(now_ms)
        samples = self._samples
        if not samples or not limit < UNLIMITED:
            return 0
        passed_ms = now_ms - samples[0][0]
        if passed_ms < self._least_ms:
            # Whole samples that are missing, and as much of a sample as has passed.
            passed_ms = self._least_ms + passed_ms % self._sample_ms
        passed_ms = max(passed_ms, self._sample_ms)
        total = self._sum * 1000
        if total <= limit * passed_ms:
            return 0
        return min(math.ceil(total / limit) - passed_ms, LONGEST_WAIT_MS) if limit else LONGEST_WAIT_MS

    def per_second(self, now_ms: int) -> float:
        """The rate per second, over the time since the oldest sample, which is at least one sample."""
        self._expire(now_ms)
        if not self._samples:
            return 0.0
        return self._sum * 1000 / max(now_ms - self._samples[0][0], self._sample_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether the rate is the same as one that was never recorded."""
        self._expire(now_ms)
        return not self._samples

    def _expire(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][1] >= self._span_ms:
            self._sum -= samples.popleft()[2]
        if not samples:
            self._sum = 0.0


class TokenBucket:
    """Fills with `limit` tokens per second up to what `burst_s` seconds bring; may be overdrawn."""

    __slots__ = ("_burst_s", "_filled_ms", "_tokens")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._filled_ms: int | None = None
        self._tokens = 0.0

    def take(self, tokens: float, limit: float, now_ms: int) -> None:
        """Remove tokens, also those that are missing."""
        self._fill(limit, now_ms)
        self._tokens -= tokens

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long it takes until the bucket is not overdrawn; 0 if it is not."""
        self._fill(limit, now_ms)
        if self._tokens >= 0 or not limit < UNLIMITED:
            return 0
        return min(math.ceil(-self._tokens / limit * 1000), LONGEST_WAIT_MS)

    def is_idle(self, limit: float, now_ms: int) -> bool:
        """Whether the bucket is full, like a new one."""
        self._fill(limit, now_ms)
        return self._tokens >= self._burst_s * limit

    def _fill(self, limit: float, now_ms: int) -> None:
        full = self._burst_s * limit
        filled_ms, self._filled_ms = self._filled_ms, now_ms
        self._tokens = full if filled_ms is None else min(full, self._tokens + limit * (now_ms - filled_ms) / 1000)
