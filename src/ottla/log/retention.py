"""Which segments may go: by the log's start, by size, by age; oldest first, never above the high watermark.

A segment's age is that of its greatest timestamp. The active one may go, too, if it is not empty.
"""

import logging
from collections.abc import Callable

from ottla.log.config import LogConfig
from ottla.log.index import CorruptIndexError
from ottla.log.segment import Segment, TornSegmentError

logger = logging.getLogger(__name__)

# Whether a segment goes, of which the next one's base offset is told (None: it is the active one).
Rule = Callable[[Segment, int | None], bool]


def count_expired(
    segments: list[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> int:
    """How many of the segments may go, from the first one on."""

    def leading(first: int, goes: Rule) -> int:
        for i in range(first, len(segments)):
            segment = segments[i]
            following = segments[i + 1].base_offset if i + 1 < len(segments) else None
            end = log_end_offset if following is None else following
            if high_watermark < end or (following is None and segment.size == 0) or not goes(segment, following):
                return i
        return len(segments)

    count = leading(0, lambda _, following: following is not None and following <= log_start_offset)
    if config.deletes and config.retention_bytes >= 0:
        count = leading(count, _beyond(config.retention_bytes, sum(segment.size for segment in segments[count:])))
    if config.deletes and config.retention_ms >= 0:
        count = leading(count, lambda segment, _: now_ms - age_of(segment) > config.retention_ms)
    return count


def _beyond(limit: int, size: int) -> Rule:
    """What can go of `size` bytes without leaving fewer than `limit`."""
    excess = size - limit

    def goes(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        excess -= segment.size
        return excess >= 0

    return goes


def age_of(segment: Segment) -> int:
    """The timestamp by which a segment ages: its greatest, or when it was written if its batches have none."""
    try:
        timestamp, _ = segment.largest_timestamp()
    except (CorruptIndexError, TornSegmentError) as error:
        logger.warning("%s ages by when it was written: %s", segment.path(), error)
        timestamp = -1
    return timestamp if timestamp >= 0 else segment.modified_ms()
