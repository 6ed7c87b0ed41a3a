"""Finds the segments that may be deleted: by log start offset, by size, by age.

Only a run from the oldest segment on is deleted, and no segment that ends above the high watermark. The greatest
timestamp of a segment determines its age. The active segment may be deleted, too, if it is not empty. Cost: one look at
each segment that is deleted and at the first that is not.
"""

import logging
from collections.abc import Callable, Sequence

from ottla.log.config import LogConfig
from ottla.log.index import CorruptIndexError
from ottla.log.segment import Segment
from ottla.log.segment_file import TornSegmentError

logger = logging.getLogger(__name__)

# Whether a segment may be deleted; the second argument is the next base offset, None for the active segment.
Rule = Callable[[Segment, int | None], bool]


def find_expired(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> list[str]:
    """For each segment that may be deleted, oldest first: the reason, in the words of Kafka's log."""

    def leading(first: int, expired: Rule) -> int:
        for i in range(first, len(segments)):
            segment = segments[i]
            following = segments[i + 1].base_offset if i + 1 < len(segments) else None
            end = log_end_offset if following is None else following
            is_empty = following is None and segment.file.size == 0
            if high_watermark < end or is_empty or not expired(segment, following):
                return i
        return len(segments)

    count = leading(0, lambda _, following: following is not None and following <= log_start_offset)
    reasons = [f"log start offset {log_start_offset} breach"] * count
    if config.deletes and config.retention_bytes >= 0:
        size = sum(segment.file.size for segment in segments[count:])
        count = leading(count, _beyond(config.retention_bytes, size))
        for segment in segments[len(reasons) : count]:
            size -= segment.file.size
            reasons.append(
                f"log retention size {config.retention_bytes} breach. Log size after deletion will be {size}."
            )
    if config.deletes and config.retention_ms >= 0:
        count = leading(count, lambda segment, _: now_ms - age_of(segment) > config.retention_ms)
        reasons += [_age_reason(segment, config.retention_ms) for segment in segments[len(reasons) : count]]
    return reasons


def _age_reason(segment: Segment, retention_ms: int) -> str:
    source = "largest record timestamp in" if _largest_timestamp(segment) >= 0 else "last modified time of"
    return f"log retention time {retention_ms}ms breach based on the {source} the segment"


def _beyond(limit: int, size: int) -> Rule:
    """A rule: delete segments of a log of `size` bytes as long as at least `limit` bytes remain."""
    excess = size - limit

    def expired(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        excess -= segment.file.size
        return excess >= 0

    return expired


def age_of(segment: Segment) -> int:
    """The greatest timestamp of a segment, or the time of the last write if its batches have no timestamps."""
    timestamp = _largest_timestamp(segment)
    return timestamp if timestamp >= 0 else segment.file.modified_ms()


def _largest_timestamp(segment: Segment) -> int:
    try:
        return segment.indices.largest_timestamp()[0]
    except (CorruptIndexError, TornSegmentError) as error:
        logger.warning("Retention of %s uses its last modified time: %s", segment.file.path(), error)
        return -1
