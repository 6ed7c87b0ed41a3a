"""Which segments may go: by the log's start, by size, by age; oldest first, never above the high watermark.

A segment's age is that of its greatest timestamp. If all segments go, a new empty one is begun first.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.index import CorruptIndexError
from ottla.log.segment import Segment, TornSegmentError

if TYPE_CHECKING:
    from ottla.log.segmented import SegmentedLog

logger = logging.getLogger(__name__)


def apply_retention(log: "SegmentedLog", now_ms: int) -> int:
    """Remove the segments that may go; how many."""
    count = _delete(log, lambda _, following: following is not None and following <= log.log_start_offset)
    if log.config.deletes:
        count += _delete_by_size(log) + _delete_by_age(log, now_ms)
    return count


def _delete_by_size(log: "SegmentedLog") -> int:
    limit = log.config.retention_bytes
    excess = log.size - limit
    if limit < 0 or excess < 0:
        return 0

    def goes(segment: Segment, _: int | None) -> bool:
        nonlocal excess
        if excess - segment.size < 0:
            return False
        excess -= segment.size
        return True

    return _delete(log, goes)


def _delete_by_age(log: "SegmentedLog", now_ms: int) -> int:
    limit = log.config.retention_ms
    if limit < 0:
        return 0
    return _delete(log, lambda segment, _: now_ms - age_of(segment) > limit)


def age_of(segment: Segment) -> int:
    """The timestamp by which a segment ages: its greatest, or when it was written if its batches have none."""
    try:
        timestamp, _ = segment.largest_timestamp()
    except (CorruptIndexError, TornSegmentError) as error:
        logger.warning("%s ages by when it was written: %s", segment.path(), error)
        timestamp = -1
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _delete(log: "SegmentedLog", goes: Callable[[Segment, int | None], bool]) -> int:
    segments = log.segments
    doomed: list[Segment] = []
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else None
        end = log.log_end_offset if following is None else following
        if log.high_watermark < end or (following is None and segment.size == 0) or not goes(segment, following):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if len(doomed) == len(segments):
        log.roll()
    remaining = log.segments[len(doomed)]
    log.advance_start(remaining.base_offset)
    log.remove_segments(doomed)
    for segment in doomed:
        log.producers.drop_snapshot(segment.base_offset)
    return len(doomed)
