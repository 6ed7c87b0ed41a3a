"""Repairs corrupt bytes in the middle of a segment, so that the batches after them can be read.

A byte that changed on disk in data that was synced long ago must not cost the records behind it. Frames have no
checksum of their own: a wrong length hides every later batch. So the stretch from the first corrupt batch to the next
sound one gets the header of one batch, with the offsets between its neighbours and the size of the stretch. If only
such a header field was corrupt, the batch is whole again. Otherwise its CRC stays wrong and readers report it.

Invariant: record data and checksums are never changed, so a repair never makes wrong data look right.
"""

import logging
from struct import Struct

from ottla.common.errors import KafkaError
from ottla.log.segment import Segment
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, check_crc, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION

logger = logging.getLogger(__name__)

_FRAME = Struct(">qi")
_DELTA_POSITION = 23
_DELTA = Struct(">i")
_CHUNK = 1 << 20


def repair_segment(segment: Segment, end_offset: int, *, contiguous: bool) -> None:
    """Make a segment a sequence of batches again, up to the first place that cannot be repaired.

    Walks the batches and stops at the first whose CRC or offsets are wrong (`contiguous`: also at a gap), repairs that
    stretch, and goes on behind it. Cost: one read of the segment. Raises OSError.
    """
    expected = segment.base_offset
    position = 0
    while position < segment.size:
        try:
            for at, data, header in segment.batches(position):
                base = header.base_offset
                if not check_crc(data, 0, len(data)):  # its length may be wrong, too
                    break
                if not expected <= base <= header.last_offset < end_offset or (contiguous and base != expected):
                    break
                position, expected = at + len(data), header.next_offset
        except KafkaError:
            logger.debug("Segment %s has no batch at position %d", segment.path(), position)
        if position >= segment.size:
            return
        stop = repair_stretch(segment, position, expected, end_offset, ends=segment.sealed)
        if stop is None:
            return
        expected = read_header(segment.read(position, position + HEADER_SIZE)).next_offset
        position = stop


def repair_stretch(segment: Segment, position: int, expected: int, end_offset: int, *, ends: bool) -> int | None:
    """Turn the bytes from `position`, where offset `expected` must begin, to the next sound batch into one batch.

    The next batch must begin below `end_offset`. If there is none up to the end of the file, the stretch ends there,
    provided that the segment `ends` with the offset before `end_offset`. Returns the position where the stretch ends;
    None if it cannot be repaired. Raises OSError.
    """
    if segment.size - position < HEADER_SIZE:
        return None
    found = _next_sound(segment, position, expected, end_offset)
    if found is None and ends and expected < end_offset:
        found = segment.size, end_offset
    if found is None:
        return None
    stop, following = found
    files, fd = segment.files, segment.open_file()
    if _is_sound(segment, position) and read_header(files.pread(fd, HEADER_SIZE, position)).next_offset == following:
        return stop  # the batch fits its successor: the gap is before it
    head = bytearray(files.pread(fd, HEADER_SIZE, position))
    (delta,) = _DELTA.unpack_from(head, _DELTA_POSITION)
    _FRAME.pack_into(head, 0, expected, stop - position - LOG_OVERHEAD)
    head[MAGIC_POSITION] = MAGIC
    stretch = bytes(head) + files.pread(fd, stop - position - HEADER_SIZE, position + HEADER_SIZE)
    is_whole = delta == following - 1 - expected and check_crc(stretch, 0, len(stretch))
    if not is_whole:
        _DELTA.pack_into(head, _DELTA_POSITION, following - 1 - expected)
        is_whole = check_crc(bytes(head) + stretch[HEADER_SIZE:], 0, len(stretch))
    files.pwrite(fd, head, position)
    logger.warning(
        "Corruption found in segment %s at position %d: offsets %d to %d are %s",
        segment.path(), position, expected, following - 1,
        "repaired" if is_whole else "lost, the batches after them are not",
    )  # fmt: skip
    return stop


def _next_sound(segment: Segment, position: int, expected: int, end_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the next sound batch after `position`."""
    files, fd = segment.files, segment.open_file()
    start = position + HEADER_SIZE
    while segment.size - start >= HEADER_SIZE:
        data = files.pread(fd, min(_CHUNK, segment.size - start), start)
        at = data.find(MAGIC, MAGIC_POSITION)
        while at >= 0 and at - MAGIC_POSITION <= len(data) - HEADER_SIZE:
            place = at - MAGIC_POSITION
            base, _ = _FRAME.unpack_from(data, place)
            if expected < base < end_offset and _is_sound(segment, start + place):
                return start + place, base
            at = data.find(MAGIC, at + 1)
        start += max(len(data) - HEADER_SIZE + 1, 1)
    return None


def _is_sound(segment: Segment, position: int) -> bool:
    files, fd = segment.files, segment.open_file()
    try:
        size = read_header(files.pread(fd, HEADER_SIZE, position)).size
    except KafkaError:
        return False
    if position + size > segment.size:
        return False
    return check_crc(files.pread(fd, size, position), 0, size)
