"""Give a harmed stretch of a segment the frame of a batch again, so that its neighbours can be reached.

A byte that changed on disk in what was synced long ago must not cost the records behind it. The stretch from the
first harmed byte's batch to the next sound batch gets the header of one batch: the offsets from one neighbour to the
other, the size of the stretch. If only such a field was harmed, the batch is whole again; else its CRC stays wrong,
and whoever reads it is told so. Nothing that a record says is ever changed.
"""

import logging
from struct import Struct
from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, check_crc, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION

if TYPE_CHECKING:
    from ottla.log.segment import Segment

logger = logging.getLogger(__name__)

_FRAME = Struct(">qi")
_DELTA_POSITION = 23
_DELTA = Struct(">i")
_CHUNK = 1 << 20


def repair(segment: "Segment", position: int, expected: int, end_offset: int, *, ends: bool) -> int | None:
    """Make one batch of what is between `position`, where offset `expected` should begin, and the next sound batch.

    Only if that one begins below `end_offset`; without one up to the end of the file, if `ends` says that the segment
    ends with the offset before `end_offset`. Where the stretch ends; None if it cannot be mended. Raises OSError.
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
        return stop  # it fits to what follows: the gap is before it
    head = bytearray(files.pread(fd, HEADER_SIZE, position))
    (delta,) = _DELTA.unpack_from(head, _DELTA_POSITION)
    _FRAME.pack_into(head, 0, expected, stop - position - LOG_OVERHEAD)
    head[MAGIC_POSITION] = MAGIC
    stretch = bytes(head) + files.pread(fd, stop - position - HEADER_SIZE, position + HEADER_SIZE)
    whole = delta == following - 1 - expected and check_crc(stretch, 0, len(stretch))
    if not whole:
        _DELTA.pack_into(head, _DELTA_POSITION, following - 1 - expected)
        if check_crc(bytes(head) + stretch[HEADER_SIZE:], 0, len(stretch)):
            whole = True
    files.pwrite(fd, head, position)
    logger.warning(
        "Corruption found in segment %s at position %d: offsets %d to %d are %s",
        segment.path(), position, expected, following - 1,
        "repaired" if whole else "lost, the batches after them are not",
    )  # fmt: skip
    return stop


def _next_sound(segment: "Segment", position: int, expected: int, end_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the next batch after `position` that is sound."""
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


def _is_sound(segment: "Segment", position: int) -> bool:
    files, fd = segment.files, segment.open_file()
    try:
        size = read_header(files.pread(fd, HEADER_SIZE, position)).size
    except KafkaError:
        return False
    if position + size > segment.size:
        return False
    return check_crc(files.pread(fd, size, position), 0, size)
