"""The record kernels in plain Python: the same promises as the compiled ones, for places without a compiler.

Every function works on `data[start:end]`, which holds records that are not (or no longer) compressed. A structure
that cannot be raises KafkaError(INVALID_RECORD), as Kafka answers; nothing is allocated on the word of a length field
before the bytes are known to be there. One conformance suite runs over both modules.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, Buffer, wrap64

COMPILED = False

_SIZE = Struct(">i")
_MIN_RECORD_SIZE = 7  # length, attributes, two deltas, key, value, header count: a byte each
_MIN_BATCH_LENGTH = 49


def _malformed(index: int, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"Record {index} of the batch is malformed: {what}")


def _bad_count(count: int, size: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{count} records cannot be in {size} bytes")


def scan_batches(buffer: Buffer, position: int = 0) -> int:
    """Position after the last whole batch v2 that follows `position` without a gap; CRCs are not checked."""
    view = memoryview(buffer)
    end = len(view)
    while end - position >= HEADER_SIZE:
        length = _SIZE.unpack_from(view, position + 8)[0]
        if length < _MIN_BATCH_LENGTH or view[position + 16] != 2 or end - position - LOG_OVERHEAD < length:
            break
        position += LOG_OVERHEAD + length
    return position


def _varint(data: Buffer, position: int, end: int, bits: int, index: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= end:
            raise _malformed(index, "it ends within a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits + 3:
            raise _malformed(index, "a number has too many bytes")
    result &= (1 << bits) - 1
    return (result >> 1) ^ -(result & 1), position


def _span(data: Buffer, position: int, end: int, index: int) -> tuple[int, int]:
    """Start and end of a field with a length before it; start is -1 for null."""
    size, position = _varint(data, position, end, 32, index)
    if size < 0:
        return -1, position
    if size > end - position:
        raise _malformed(index, f"a field of {size} bytes, {end - position} are left")
    return position, position + size


# One record's shape: (position of body, timestamp delta, offset delta, key start, key end, value start, value end,
# header count, position of headers, end). Null fields have start -1.
_Shape = tuple[int, int, int, int, int, int, int, int, int, int]


def _shape(data: Buffer, position: int, end: int, index: int) -> _Shape:
    size, position = _varint(data, position, end, 32, index)
    if size < 0 or size > end - position:
        raise _malformed(index, f"{size} bytes are declared, {end - position} are left")
    if size == 0:
        raise _malformed(index, "it is empty")
    body = position
    end = position + size
    timestamp_delta, position = _varint(data, position + 1, end, 64, index)
    offset_delta, position = _varint(data, position, end, 32, index)
    key_start, key_end = _span(data, position, end, index)
    value_start, value_end = _span(data, key_end, end, index)
    headers, position = _varint(data, value_end, end, 32, index)
    # A header takes two bytes at least.
    if headers < 0 or headers > (end - position) // 2:
        raise _malformed(index, f"{headers} headers are declared, {end - position} bytes are left")
    return (body, timestamp_delta, offset_delta, key_start, key_end, value_start, value_end, headers, position, end)


def _skip_headers(data: Buffer, position: int, end: int, count: int, index: int) -> None:
    for _ in range(count):
        start, position = _span(data, position, end, index)
        if start < 0:
            raise _malformed(index, "a header without a key")
        _, position = _span(data, position, end, index)
    if position != end:
        raise _malformed(index, f"{end - position} bytes are left over")


def _check_count(count: int, start: int, end: int) -> None:
    if count < 0 or count > (end - start) // _MIN_RECORD_SIZE:
        raise _bad_count(count, end - start)


def _check_end(position: int, end: int, count: int) -> None:
    if position != end:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{end - position} bytes follow the {count} records of the batch")


def walk_records(data: Buffer, start: int, end: int, count: int) -> tuple[int, int, int, int]:
    """Check the structure of `count` records: (least, greatest timestamp delta, records without key, out of order).

    The last is how many records do not have their index as offset delta. An empty batch yields zeros.
    """
    _check_count(count, start, end)
    least = greatest = null_keys = misplaced = 0
    position = start
    for index in range(count):
        _, delta, offset_delta, key_start, _, _, _, headers, at, position = _shape(data, position, end, index)
        _skip_headers(data, at, position, headers, index)
        if index == 0 or delta < least:
            least = delta
        if index == 0 or delta > greatest:
            greatest = delta
        null_keys += key_start < 0
        misplaced += offset_delta != index
    _check_end(position, end, count)
    return least, greatest, null_keys, misplaced


def plain_batch(buffer: Buffer, most_bytes: int, make: Any) -> Any:  # noqa: ARG001 - the compiled one's signature
    """(header, least and greatest timestamp, records without key) of a batch with nothing special, or None.

    None is always right: who asks then looks at the batch piece by piece, which is as quick in Python.
    """
    return None


def decode_records(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    make: type[Any],
) -> list[Any]:
    """The records as instances of `make`, a NamedTuple of offset, timestamp, key, value, headers.

    `append_time` replaces the records' own timestamps. A header key that is no UTF-8 is decoded with replacements.
    """
    _check_count(count, start, end)
    data = memoryview(data)
    rows = []
    position = start
    for index in range(count):
        (_, delta, offset_delta, key_start, key_end, value_start, value_end, headers, at, position) = _shape(
            data, position, end, index
        )
        timestamp = wrap64(base_timestamp + delta) if append_time is None else append_time
        rows.append(
            make(
                wrap64(base_offset + offset_delta),
                timestamp,
                None if key_start < 0 else bytes(data[key_start:key_end]),
                None if value_start < 0 else bytes(data[value_start:value_end]),
                _headers(data, at, position, headers, index),
            )
        )
    _check_end(position, end, count)
    return rows


def _headers(data: memoryview, position: int, end: int, count: int, index: int) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        start, position = _span(data, position, end, index)
        if start < 0:
            raise _malformed(index, "a header without a key")
        key = str(data[start:position], "utf-8", "replace")
        start, position = _span(data, position, end, index)
        headers.append((key, None if start < 0 else bytes(data[start:position])))
    if position != end:
        raise _malformed(index, f"{end - position} bytes are left over")
    return headers


def decode_keys(
    data: Buffer, start: int, end: int, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bool]]:
    """(offset, key, whether there is a value) of every record: what compaction asks."""
    _check_count(count, start, end)
    data = memoryview(data)
    rows = []
    position = start
    for index in range(count):
        _, _, offset_delta, key_start, key_end, value_start, _, headers, at, position = _shape(
            data, position, end, index
        )
        _skip_headers(data, at, position, headers, index)
        key = None if key_start < 0 else bytes(data[key_start:key_end])
        rows.append((wrap64(base_offset + offset_delta), key, value_start >= 0))
    _check_end(position, end, count)
    return rows


def keep_records(
    data: Buffer, start: int, end: int, count: int, mask: Buffer, shift: int
) -> tuple[bytearray, int, int, int]:
    """The records whose byte in `mask` is not 0: (61 bytes for a header and the records, how many, deltas).

    `shift` is added to the timestamp deltas; the two deltas returned, of the first and of the latest record kept, are
    those before it.
    """
    _check_count(count, start, end)
    if len(mask) != count:
        raise ValueError(f"A mask of {len(mask)} for {count} records")
    data = memoryview(data)
    out = bytearray(HEADER_SIZE)
    kept = first = greatest = 0
    position = start
    for index in range(count):
        begin = position
        body, delta, _, _, _, _, _, headers, at, position = _shape(data, position, end, index)
        _skip_headers(data, at, position, headers, index)
        if not mask[index]:
            continue
        if kept == 0:
            first = greatest = delta
        elif delta > greatest:
            greatest = delta
        kept += 1
        if shift == 0:
            out += data[begin:position]
            continue
        _, after = _varint(data, body + 1, position, 64, index)
        rest = data[after:position]
        moved = _encoded(wrap64(delta + shift))
        out += _encoded(1 + len(moved) + len(rest)) + data[body : body + 1] + moved + rest
    _check_end(position, end, count)
    return out, kept, first, greatest


def _encoded(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def encode_records(
    records: Iterable[tuple[int, Any, Any, Any]], offset_deltas: Sequence[int] | None
) -> tuple[bytearray, int, int, int, int]:
    """Records of (timestamp, key, value, headers): (61 bytes for a header and the records, how many, base and max
    timestamp, last offset delta). Without records the timestamps are -1 and the delta is -1.

    Key, value and a header's value may be None or any buffer, a header's key a str.
    """
    out = bytearray(HEADER_SIZE)
    base_timestamp = max_timestamp = last = -1
    count = 0
    for timestamp, key, value, headers in records:
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        last = count if offset_deltas is None else offset_deltas[count]
        count += 1
        append_record(out, wrap64(timestamp - base_timestamp), last, key, value, headers)
    return out, count, base_timestamp, max_timestamp, last


def append_record(out: bytearray, delta: int, index: int, key: Any, value: Any, headers: Any) -> int:
    """Add a record to those in `out`: how many bytes it takes. Fields as for `encode_records`."""
    body = [b"\0", _encoded(delta), _encoded(index)]
    _put(body, key)
    _put(body, value)
    if headers:
        body.append(_encoded(len(headers)))
        for name, header in headers:
            _put(body, name.encode())
            _put(body, header)
    else:
        body.append(b"\0")
    joined = b"".join(body)
    length = _encoded(len(joined))
    out += length
    out += joined
    return len(length) + len(joined)


def _put(body: list[Any], field: Any) -> None:
    if field is None:
        body.append(b"\x01")
    else:
        body.append(_encoded(len(field)))
        body.append(field)


def murmur2(key: Buffer) -> int:
    """Kafka's 32-bit MurmurHash2 of a key, with its seed, as an unsigned number."""
    length = len(key)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(key[position : position + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k
    if whole != length:
        h = (h ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15
