"""`RollPolicy`: when a log starts a new segment."""

from zlib import crc32

from ottla.log.config import LogConfig
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.segment import INT32_MAX, Segment


class RollPolicy:
    """Decides before each append whether the batch goes to a new segment.

    A segment is rolled when the batch would exceed segment.bytes, when the offset would not fit the index's 32 bits,
    when segment.ms passed between the first batch and this one (by their timestamps; without timestamps by the
    clock), or when an index is full. An empty segment is rolled only for the offset. The jitter is derived from the
    segment's name, so that replicas and restarts roll at the same place. Cost: no I/O, except the first timestamp of
    a segment that was opened after a restart.
    """

    __slots__ = ("_config", "_max_offset_entries", "_max_time_entries", "_max_wait_ms", "_name")

    def __init__(self, config: LogConfig, name: str) -> None:
        self._config = config
        self._name = name
        self._max_wait_ms = config.max_segment_ms
        self._max_offset_entries = max(config.segment_index_bytes // OffsetIndex.entry.size, 1)
        # One entry is reserved: sealing a segment adds the greatest timestamp.
        self._max_time_entries = max(config.segment_index_bytes // TimeIndex.entry.size - 1, 1)

    def is_due(self, segment: Segment, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` needs a new segment after `segment`."""
        config, indices, present = self._config, segment.indices, segment.file.size
        if present + size > config.segment_bytes or last_offset - segment.base_offset > INT32_MAX:
            return True
        if present == 0:
            return False
        started = indices.first_timestamp
        if started is None:
            started = indices.first_batch_timestamp()
        waited = timestamp - started if started >= 0 else now_ms - segment.created_ms
        if waited > self._max_wait_ms - (config.segment_jitter_ms and self._jitter(segment)):
            return True
        return indices.have_entries(self._max_offset_entries, self._max_time_entries)

    def _jitter(self, segment: Segment) -> int:
        span = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return crc32(f"{self._name}@{segment.base_offset}".encode()) % max(span, 1)
