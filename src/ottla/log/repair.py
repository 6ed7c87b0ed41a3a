"""Repairs corrupt bytes in the middle of a segment, so that the batches after them can be read.

A byte that changed on disk in data that was synced long ago must not cost the records behind it.

- Frames have no checksum of their own: a wrong length hides every later batch. The stretch from the first corrupt batch
  to the next sound one gets the header of one batch (`repair_stretch`). If only such a header field was corrupt, the
  batch is whole again. Otherwise its CRC stays wrong and readers report it. A header that fits stays as it is.
- No CRC covers a base offset. Two batches whose CRCs are right and whose offsets overlap contradict each other. The
  batch that has exactly the offsets between its neighbours gets its base offset back (`realign`). If neither has, both
  are left as they are, and reads of them fail: a guess could give a record the offset of another one.

Invariants: record data and checksums are never changed, so a repair never makes wrong data look right. A gap between
two batches is never corruption: compaction leaves gaps, a follower copies its leader's gaps, and no setting says
whether a log has any. The original header is copied beside the segment before it is changed (see `salvage`).
"""

import logging
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from ottla.common.errors import KafkaError
from ottla.log import salvage
from ottla.log.segment import INT32_MAX, Segment
from ottla.log.segment_file import TornSegmentError
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, check_crc, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION

logger = logging.getLogger(__name__)

# How many batches of a segment are moved in one repair: each may lead to another read of the segment.
MOST_REALIGNED = 16
_BASE = Struct(">q")
_FRAME = Struct(">qi")
# Offset, length, CRC of a message of formats 0 and 1; the magic follows.
_OLD_FRAME = Struct(">qiI")
_OLD_FRAME_CRC = 4
_DELTA_POSITION = 23
_DELTA = Struct(">i")
_CHUNK = 1 << 20


def repair_segment(segment: Segment, end_offset: int) -> None:
    """Make a segment, which ends at `end_offset`, a sequence of batches with rising offsets as far as possible.

    Cost: one read of the segment. Raises OSError.
    """
    position, expected, realigned = 0, segment.base_offset, 0
    while True:
        position, expected = _skip_right(segment, position, expected, end_offset)
        if segment.file.size - position < HEADER_SIZE:
            return
        sound = sound_batch(segment, position)
        if sound is None:
            stop = repair_stretch(segment, position, expected, end_offset, ends_at=end_offset)
            if stop is None:
                return
            expected = max(expected, read_header(segment.file.read(position, position + HEADER_SIZE)).next_offset)
            position = stop
            continue
        placed = None
        if realigned < MOST_REALIGNED:
            placed = realign(segment, position, end_offset, ends_at=end_offset)
        if placed is None:
            position += sound.size
        else:
            realigned += 1
            position, expected = placed.position, placed.start


def _skip_right(segment: Segment, position: int, expected: int, end_offset: int) -> tuple[int, int]:
    """Position of the first batch with a wrong frame, CRC or offset, and the offset at which it may begin."""
    try:
        for at, data, header in segment.file.batches(position):
            if not check_crc(data, 0, len(data)):  # its length may be wrong, too
                break
            if not expected <= header.base_offset <= header.last_offset < end_offset:
                break
            position, expected = at + len(data), header.next_offset
    except KafkaError:
        logger.debug("Segment %s has no batch at position %d", segment.file.path(), position)
    return position, expected


class Place(NamedTuple):
    """A batch at `position` of `length` offsets, and the offsets between its neighbours: [start, end)."""

    position: int
    length: int
    start: int
    end: int


def realign(segment: Segment, position: int, end_offset: int, *, ends_at: int | None) -> Place | None:
    """Correct the base offset of the sound batch at `position` or of the previous one, which contradict each other.

    The batch that fits exactly between its neighbours is corrected. `ends_at` is the end offset of the segment if it is
    known. Returns its place; None if neither fits. Cost: a walk over the segment.
    """
    previous, expected = None, segment.base_offset
    try:
        for at, base, _, last, _ in segment.file.walk(0):
            if at >= position:
                break
            if base >= expected:
                previous, expected = Place(at, last - base + 1, expected, 0), last + 1
    except TornSegmentError:
        return None
    header = read_header(segment.file.read(position, position + HEADER_SIZE))
    places = []
    if previous is not None and header.base_offset < expected:
        places.append(previous._replace(end=header.base_offset))
    following = _base_after(segment, position + header.size, expected, end_offset)
    end = ends_at if following is None else following
    if end is not None:
        places.append(Place(position, header.last_offset_delta + 1, expected, end))
    place = next((place for place in places if place.end - place.start == place.length), None)
    if place is None:
        logger.error(
            "Corruption found in segment %s at position %d: no base offset is right for the batch, which has %d. Its"
            " bytes are left as they are, and reads of it fail",
            segment.file.path(), position, header.base_offset,
        )  # fmt: skip
        return None
    fields = _BASE.pack(place.start)
    was = int.from_bytes(segment.file.read(place.position, place.position + len(fields)), "big", signed=True)
    _replace(segment, place.position, fields, f"base offset {was} is now {place.start}")
    return place


def _base_after(segment: Segment, position: int, expected: int, end_offset: int) -> int | None:
    """The base offset of the next sound batch from `position` on; behind corrupt bytes, of one above `expected`."""
    header = sound_batch(segment, position)
    if header is not None:
        return min(header.base_offset, end_offset)
    found = _next_sound(segment, position, expected, end_offset)
    return None if found is None else found[1]


def repair_stretch(
    segment: Segment, position: int, expected: int, end_offset: int, *, ends_at: int | None
) -> int | None:
    """Make the bytes from `position`, where offset `expected` may begin, to the next sound batch one batch.

    The next batch must begin below `end_offset`. If there is none up to the end of the file, the stretch ends there,
    if the end offset of the segment is known, `ends_at`. Else a batch with a wrong CRC stays if its header fits.
    Returns the position where the stretch ends; None if it cannot be repaired. Raises OSError.
    """
    if segment.file.size - position < HEADER_SIZE:
        return None
    head = bytearray(segment.file.head_at(position))
    if _is_old_format(segment, position, head):
        logger.error(
            "Segment %s has records of the message format %d at position %d, which are not served and left as they are",
            segment.file.path(), head[MAGIC_POSITION], position,
        )  # fmt: skip
        return None
    found = _next_sound(segment, position + HEADER_SIZE, expected, end_offset)
    if found is None and ends_at is not None and expected < ends_at:
        found = segment.file.size, ends_at
    base, length = _FRAME.unpack_from(head)
    (delta,) = _DELTA.unpack_from(head, _DELTA_POSITION)
    stop, following = found or (position + length + LOG_OVERHEAD, end_offset)
    fits = head[MAGIC_POSITION] == MAGIC and HEADER_SIZE <= length + LOG_OVERHEAD == stop - position
    if fits and stop <= segment.file.size and expected <= base and 0 <= delta < following - base:
        logger.warning(
            "Corruption found in segment %s at position %d: the batch of offsets %d to %d has a wrong CRC; the batches"
            " after it can be read",
            segment.file.path(), position, base, base + delta,
        )  # fmt: skip
        return stop
    if found is None:
        return None
    rest = segment.file.files.pread(segment.file.open(), stop - position - HEADER_SIZE, position + HEADER_SIZE)
    is_whole = _fix_head(head, rest, expected, following)
    problem = f"offsets {expected} to {following - 1} are "
    problem += "repaired" if is_whole else "lost, the batches after them are not"
    _replace(segment, position, head, problem)
    return stop


def _fix_head(head: bytearray, rest: bytes, expected: int, following: int) -> bool:
    """Make `head` the header of one batch in [expected, following); whether that makes the batch whole."""
    base, _ = _FRAME.unpack_from(head)
    (delta,) = _DELTA.unpack_from(head, _DELTA_POSITION)
    head[MAGIC_POSITION] = MAGIC
    for each in (delta, following - 1 - base, following - 1 - expected):
        if not 0 <= each < min(following - expected, INT32_MAX):
            continue
        own = base if expected <= base < following - each else following - 1 - each
        _FRAME.pack_into(head, 0, own, HEADER_SIZE + len(rest) - LOG_OVERHEAD)
        _DELTA.pack_into(head, _DELTA_POSITION, each)
        if check_crc(bytes(head) + rest, 0, HEADER_SIZE + len(rest)):
            return True
    if not expected <= base < following:
        base = expected
    if not 0 <= delta < following - base:
        delta = min(following - 1 - base, INT32_MAX)
    _FRAME.pack_into(head, 0, base, HEADER_SIZE + len(rest) - LOG_OVERHEAD)
    _DELTA.pack_into(head, _DELTA_POSITION, delta)
    return False


def _replace(segment: Segment, position: int, data: bytes | bytearray, problem: str) -> None:
    copy = salvage.save_bytes(segment, position, position + HEADER_SIZE, salvage.REPLACED)
    segment.file.files.pwrite(segment.file.open(), data, position)
    logger.error(
        "Corruption found in segment %s at position %d: %s. Its former header is in %s: to undo the repair, stop the"
        " broker and write these bytes to that position (dd if=COPY of=SEGMENT bs=1 seek=%d conv=notrunc)",
        segment.file.path(), position, problem, copy, position,
    )  # fmt: skip
    salvage.limit(segment.file.files, segment.file.directory, {copy})


def has_sound_batch(segment: Segment, position: int) -> bool:
    """Whether there is a batch with a right CRC in the segment's file from `position` on."""
    head = segment.file.head_at(position)
    if sound_batch(segment, position) is not None or _is_old_format(segment, position, head):
        return True
    lowest = segment.base_offset - 1
    return _next_sound(segment, position, lowest, segment.base_offset + INT32_MAX) is not None


def _is_old_format(segment: Segment, position: int, head: bytes | bytearray) -> bool:
    """Whether a message from before Kafka 0.11 with a right CRC is at a position."""
    if len(head) <= MAGIC_POSITION or head[MAGIC_POSITION] >= MAGIC:
        return False
    _, length, crc = _OLD_FRAME.unpack_from(head)
    if not 0 < length <= segment.file.size - position - LOG_OVERHEAD:
        return False
    data = segment.file.files.pread(segment.file.open(), length - _OLD_FRAME_CRC, position + MAGIC_POSITION)
    return bool(crc32(data) == crc)


def _next_sound(segment: Segment, start: int, above: int, end_offset: int) -> tuple[int, int] | None:
    """Position and base offset of the next sound batch from `start` on whose base is in (above, end_offset)."""
    files, fd = segment.file.files, segment.file.open()
    while segment.file.size - start >= HEADER_SIZE:
        data = files.pread(fd, min(_CHUNK, segment.file.size - start), start)
        for place in _frames_in(data):
            base, _ = _FRAME.unpack_from(data, place)
            if above < base < end_offset and sound_batch(segment, start + place) is not None:
                return start + place, base
        start += max(len(data) - HEADER_SIZE + 1, 1)
    return None


def _frames_in(data: bytes) -> Iterable[int]:
    at = data.find(MAGIC, MAGIC_POSITION)
    while at >= 0 and at - MAGIC_POSITION <= len(data) - HEADER_SIZE:
        yield at - MAGIC_POSITION
        at = data.find(MAGIC, at + 1)


def sound_batch(segment: Segment, position: int) -> BatchHeader | None:
    """The header of the batch at a position if its frame and CRC are right, None otherwise."""
    files, fd = segment.file.files, segment.file.open()
    if segment.file.size - position < HEADER_SIZE:
        return None
    try:
        header = read_header(files.pread(fd, HEADER_SIZE, position))
    except KafkaError:
        return None
    if position + header.size > segment.file.size or header.last_offset_delta < 0:
        return None
    return header if check_crc(files.pread(fd, header.size, position), 0, header.size) else None
