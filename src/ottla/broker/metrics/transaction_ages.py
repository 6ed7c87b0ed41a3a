"""The age of the first open transaction of each partition.

A log knows the offset at which a transaction began, but not the time: the timestamps of records are the client's, and
may be years old. So a scrape notes when it first saw a transaction as the first open one. The age is therefore too low
by up to the interval of the scrapes, and begins again when the node starts. It is never too high. Followers note it
too: a new leader continues with the age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.slices import Slices

if TYPE_CHECKING:
    from ottla.log import Log
    from ottla.partitions.partitions import Partitions

_AT_ONCE = 500


class TransactionAges:
    """The state between two scrapes."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        """The offset of the first open transaction, and when it was seen first, by partition."""

    def age_ms(self, log: Log, now_ms: int) -> int | None:
        """Return the age of the first open transaction; None without one."""
        offset = log.producers.first_open_offset
        if offset is None:
            if self._seen:
                self._seen.pop(log.topic_partition, None)
            return None
        first, since_ms = self._seen.get(log.topic_partition, (-1, now_ms))
        if first != offset:
            since_ms = now_ms
            self._seen[log.topic_partition] = offset, now_ms
        return max(now_ms - since_ms, 0)

    def forget_closed(self, partitions: Partitions) -> Slices[None]:
        """Forget partitions that are not on this node any more."""
        for number, (topic, index) in enumerate(list(self._seen)):
            if partitions.local_log(topic, index) is None:
                self._seen.pop((topic, index), None)
            if number % _AT_ONCE == 0:
                yield
