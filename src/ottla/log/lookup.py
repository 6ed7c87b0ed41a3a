"""Queries that read the log without changing it: offsets by timestamp, aborted transactions.

Timestamps need not rise from segment to segment, but the greatest timestamp up to the end of each segment does. These
maxima are cached in `SegmentList.max_timestamps`, so a query bisects them and then reads one segment.
"""

from bisect import bisect_left

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.index import CorruptIndexError
from ottla.log.segment import CorruptSegmentError, Segment
from ottla.log.segment_file import TornSegmentError
from ottla.log.segment_list import SegmentList
from ottla.log.txn_index import AbortedTransaction
from ottla.records import BatchHeader, check_crc, decode_batch


def learn_timestamps(segments: SegmentList, limit: int) -> bool:
    """Extend the cached maxima by up to `limit` sealed segments; whether all sealed segments are in the cache now."""
    maxima = segments.max_timestamps
    known = len(maxima)
    stop = min(len(segments) - 1, known + limit)
    greatest = maxima[-1] if maxima else -1
    for segment in segments[known:stop]:
        try:
            timestamp, _ = segment.indices.largest_timestamp()
        except (CorruptIndexError, TornSegmentError) as error:
            raise CorruptSegmentError(segment, error) from error
        greatest = max(greatest, timestamp)
        maxima.append(greatest)
    return stop == len(segments) - 1


def find_timestamp(segments: SegmentList, timestamp: int, start: int, upper_bound: int) -> tuple[int, int, int] | None:
    """See `Log.offset_for_timestamp`."""
    learn_timestamps(segments, len(segments))
    for i in range(bisect_left(segments.max_timestamps, timestamp), len(segments)):
        segment = segments[i]
        if segment.base_offset >= upper_bound:
            return None
        try:
            if segment.indices.largest_timestamp()[0] >= timestamp:
                found = _find_in(segment, timestamp, start, upper_bound)
                if found is not None:
                    return found
        except (CorruptIndexError, TornSegmentError) as error:
            raise CorruptSegmentError(segment, error) from error
    return None


def _find_in(segment: Segment, timestamp: int, start: int, upper_bound: int) -> tuple[int, int, int] | None:
    # An index entry promises that records with a greater timestamp come after its offset.
    offset = segment.indices.before_timestamp(timestamp)
    for _, data, header in segment.file.batches(segment.locate(max(offset, start))):
        if header.base_offset >= upper_bound:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        _check(segment, data, header)
        for record in decode_batch(data):
            if record.timestamp >= timestamp and record.offset >= start:
                if record.offset >= upper_bound:
                    return None
                return record.timestamp, record.offset, header.partition_leader_epoch
    return None


def find_max_timestamp(segments: SegmentList) -> tuple[int, int, int] | None:
    """See `Log.max_timestamp_offset`."""
    learn_timestamps(segments, len(segments))
    maxima = segments.max_timestamps
    best = segments[-1]
    try:
        greatest = best.indices.largest_timestamp()[0]
        if maxima and maxima[-1] >= greatest:
            greatest = maxima[-1]
            best = segments[bisect_left(maxima, greatest)]
        if greatest < 0:
            return None
        return _first_record_with(best, greatest)
    except (CorruptIndexError, TornSegmentError) as error:
        raise CorruptSegmentError(best, error) from error


def _first_record_with(segment: Segment, greatest: int) -> tuple[int, int, int] | None:
    """Timestamp, offset and leader epoch of the first record with the greatest timestamp of the segment."""
    for _, data, header in segment.file.batches(segment.locate(segment.indices.largest_timestamp()[1])):
        if header.max_timestamp == greatest:
            _check(segment, data, header)
            offset = next((record.offset for record in decode_batch(data) if record.timestamp == greatest), None)
            if offset is not None:
                return greatest, offset, header.partition_leader_epoch
    return None


def _check(segment: Segment, data: memoryview, header: BatchHeader) -> None:
    if not check_crc(data, 0, len(data)):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{segment.file.path()}: the batch at offset {header.base_offset} has a wrong CRC",
        )


def collect_aborted(segments: SegmentList, start: int, upper: int) -> list[AbortedTransaction]:
    """See `Log.aborted_transactions`."""
    found: list[AbortedTransaction] = []
    for segment in segments[segments.index_at(start) :]:
        try:
            entries = segment.indices.transactions.all()
        except CorruptIndexError as error:
            raise CorruptSegmentError(segment, error) from error
        for entry in entries:
            if entry.last_offset >= start and entry.first_offset < upper:
                found.append(entry)
            if entry.last_stable_offset >= upper:
                return found
    return found
