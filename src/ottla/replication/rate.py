"""The rate of a kind of traffic over the last seconds, and how long it has to wait for its limit. KIP-73, KIP-113.

As in Kafka, the rate is the bytes of the last samples, the unfinished one included, over the time since the oldest of
them began, at least the length of one. It is a limit for the average: a burst is followed by a pause.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 2**63 - 1


class ByteRate:
    """The bytes of the last `samples` times `sample_ms`. Times are of the monotonic clock, in milliseconds."""

    __slots__ = ("_sample_ms", "_samples", "_span_ms")

    def __init__(self, samples: int = 11, sample_ms: int = 1000) -> None:
        self._sample_ms = sample_ms
        self._span_ms = samples * sample_ms
        # The start and the bytes of each sample, oldest first.
        self._samples: deque[list[int]] = deque()

    def record(self, size: int, now_ms: int) -> None:
        """Count traffic of `size` bytes."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._sample_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size

    def wait_ms(self, limit: int, now_ms: int) -> int:
        """How long the traffic must stop so that its rate falls to `limit` bytes per second; 0 if it need not.

        At most one sample: the limit may be changed meanwhile.
        """
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._span_ms:
            samples.popleft()
        if not samples or limit >= UNLIMITED:
            return 0
        passed_ms = max(now_ms - samples[0][0], self._sample_ms)
        total = sum(size for _, size in samples) * 1000
        if total <= limit * passed_ms:
            return 0
        missing_ms = -(-total // limit) - passed_ms if limit else self._sample_ms
        return min(missing_ms, self._sample_ms)


def throttles(replicas: str, node_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a node a valid `*.replication.throttled.replicas` names; None for all."""
    if replicas.strip() == "*":
        return None
    pairs = (entry.split(":") for entry in replicas.split(",") if entry.strip())
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
