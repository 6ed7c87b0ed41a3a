"""Records and batches that several tests use."""

import struct

from hypothesis import strategies as st

from ottla.records import Codec, encode_batch, kernels
from ottla.records.batch import LOG_OVERHEAD, seal

ROWS = [
    (1_000, b"key", b"value", []),
    (1_005, None, b"", [("trace", b"abc"), ("empty", b""), ("null", None), ("", b"x")]),
    (900, b"", None, []),
    (1_000, b"k" * 200, b"v" * 70_000, [("größe", b"\xff")]),
]

CODECS = list(Codec)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), FIELD), max_size=4)
TIMESTAMPS = st.integers(-1, 1 << 42)
RECORDS = st.lists(st.tuples(TIMESTAMPS, FIELD, FIELD, HEADERS), min_size=1, max_size=20)
# As producers write them: of nearly one time.
NEAR = st.lists(st.tuples(st.integers(-70, 9_000), FIELD, FIELD, HEADERS), min_size=1, max_size=20)


def rows_of(records: list) -> list:
    """Return records in the form that encode_batch takes."""
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


def batch_with_deltas(rows: list, deltas: list[int]) -> bytearray:
    """Return a batch whose offset deltas are not 0, 1, 2..., as compaction leaves them."""
    batch = encode_batch(rows)
    out, *_, last_delta = kernels.encode_records(rows, deltas)
    out[:61] = batch[:61]
    return with_field(with_field(out, 8, ">i", len(out) - LOG_OVERHEAD), 23, ">i", last_delta)


def with_field(batch: bytes | bytearray, position: int, layout: str, value: int) -> bytearray:
    """Return the batch with one changed header field and a valid CRC."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    length = struct.unpack_from(">i", changed, 8)[0]
    if LOG_OVERHEAD + length <= len(changed) and length >= 49:
        seal(changed, 0)
    return changed


def with_payload(batch: bytes | bytearray, payload: bytes) -> bytearray:
    """Return the batch with other bytes in place of its records."""
    changed = bytearray(batch[:61]) + payload
    return with_field(changed, 8, ">i", len(changed) - LOG_OVERHEAD)
