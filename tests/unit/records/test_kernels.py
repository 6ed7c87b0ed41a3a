"""One suite over the compiled record kernels and their sources."""

import gc
import mmap
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records import (
    BatchProducer,
    Codec,
    Record,
    check_crc,
    decode_batch,
    decode_keys,
    encode_batch,
    read_header,
)
from ottla.records.batch import Buffer, EncodedRecords, patch
from ottla.records.compaction import retain
from tests.conftest import DRAWN_EXAMPLES

from .conftest import compiled_kernels, uncompiled_kernels
from .samples import CODECS, INT64, NEAR, RECORDS, ROWS, batch_with_deltas, rows_of, with_payload

BOTH = settings(max_examples=DRAWN_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_records_roundtrip(kernel: SimpleNamespace, codec: Codec, wrap: type) -> None:
    batch = encode_batch(ROWS, base_offset=100, codec=codec)
    records = decode_batch(wrap(batch))
    assert rows_of(records) == ROWS
    assert [record.offset for record in records] == [100, 101, 102, 103]
    assert all(type(record) is Record for record in records)


@BOTH
@given(rows=RECORDS, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 1 << 50))
def test_arbitrary_records_roundtrip(kernel: SimpleNamespace, rows: list, codec: Codec, base_offset: int) -> None:
    batch = encode_batch(rows, codec=codec, base_offset=base_offset)
    assert check_crc(batch, 0, len(batch))
    records = decode_batch(batch)
    assert rows_of(records) == rows
    assert decode_keys(batch) == [(record.offset, record.key, record.value is not None) for record in records]
    header = read_header(batch)
    assert header.max_timestamp == max(row[0] for row in rows)
    assert header.record_count == len(rows)


@BOTH
@given(timestamps=st.lists(INT64, min_size=1, max_size=5), base_offset=INT64)
@example(timestamps=[-(1 << 63), (1 << 63) - 1], base_offset=(1 << 63) - 1)
def test_sums_beyond_int64_wrap(kernel: SimpleNamespace, timestamps: list[int], base_offset: int) -> None:
    batch = encode_batch([(timestamp, None, None, []) for timestamp in timestamps], base_offset=base_offset)
    assert [record.timestamp for record in decode_batch(batch)] == timestamps
    assert all(-(1 << 63) <= record.offset < 1 << 63 for record in decode_batch(batch))


@pytest.mark.skipif(compiled_kernels() is None, reason="the kernels are not compiled here")
@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(rows=RECORDS, deltas=st.none() | st.lists(st.integers(0, (1 << 31) - 1), min_size=20, max_size=20))
def test_both_kernels_write_the_same_bytes(rows: list, deltas: list[int] | None) -> None:
    compiled = compiled_kernels()
    assert compiled is not None
    assert compiled.encode_records(rows, deltas) == uncompiled_kernels.encode_records(rows, deltas)


def _outcome(module: SimpleNamespace, name: str, *arguments: object) -> object:
    try:
        return getattr(module, name)(*arguments)
    except KafkaError as error:
        return error.code


# Numbers of one to four bytes: the compiled kernels have their own way to read up to three bytes.
SIZES = [
    (7, None, b"value of a record", []),
    (6, b"k", b"v" * 70, [("h", None)]),
    (9_000, b"", b"", []),
    (2_000_000, None, b"late", []),
    (7, None, b"far away", []),
    (2_000_000, b"key", None, [("", b"x")]),
    (7, None, b"at end", []),
]
SIZES_DELTAS = [0, 70, 9_000, 1, 1 << 21, 1 << 20, 5]


@pytest.mark.skipif(compiled_kernels() is None, reason="the kernels are not compiled here")
def test_both_kernels_agree_on_every_value_of_every_byte() -> None:
    compiled = compiled_kernels()
    assert compiled is not None
    out, count, *_ = uncompiled_kernels.encode_records(SIZES, SIZES_DELTAS)
    for position in range(61, len(out)):
        was = out[position]
        for byte in range(256):
            out[position] = byte
            found = _outcome(compiled, "walk_records", out, 61, len(out), count)
            assert found == _outcome(uncompiled_kernels, "walk_records", out, 61, len(out), count), (position, byte)
        out[position] = was
    for end in range(61, len(out)):
        found = _outcome(compiled, "walk_records", out, 61, end, count)
        assert found == _outcome(uncompiled_kernels, "walk_records", out, 61, end, count), end


def _walk_to_the_edge() -> None:
    """Read corrupt records of all lengths that end before an inaccessible page, whose access kills the process."""
    page = mmap.PAGESIZE
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * page)
        room = mmap.mmap(file.fileno(), 2 * page)
        file.truncate(page)
    out, count, *_ = uncompiled_kernels.encode_records(SIZES, SIZES_DELTAS)
    for end in range(61, len(out) + 1):
        start = page - end
        room[start:page] = bytes(out[:end])
        for position in range(max(61, end - 30), end):
            for byte in (*range(16), 0x7F, 0x80, 0xFF):
                room[start + position] = byte
                for name, more in (("walk_records", ()), ("decode_keys", (0,))):
                    _outcome(compiled_kernels() or uncompiled_kernels, name, room, start + 61, page, count, *more)
            room[start + position] = out[position]


@pytest.mark.skipif(compiled_kernels() is None, reason="the kernels are not compiled here")
def test_nothing_is_read_beyond_the_end() -> None:
    script = f"from {__name__} import _walk_to_the_edge; _walk_to_the_edge(); print('alive')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


@pytest.mark.skipif(compiled_kernels() is None, reason="the kernels are not compiled here")
@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@given(rows=RECORDS | NEAR, data=st.data(), shift=st.sampled_from([0, 1, -5_000_000_000, (1 << 63) - 1]))
def test_both_kernels_agree_on_corrupted_records(rows: list, data: st.DataObject, shift: int) -> None:
    compiled = compiled_kernels()
    assert compiled is not None
    out, count, *_ = uncompiled_kernels.encode_records(rows, None)
    for _ in range(data.draw(st.integers(0, 3))):
        out[data.draw(st.integers(61, len(out) - 1))] = data.draw(st.integers(0, 255))
    count += data.draw(st.sampled_from([0, 0, 0, 1, -1, 1 << 31]))
    end = len(out) - data.draw(st.sampled_from([0, 0, 0, 1, 5]))
    mask = data.draw(st.binary(min_size=max(count, 0), max_size=max(count, 0))) if count < 100 else b""
    span = (bytes(out), 61, max(end, 61), count)
    for name, arguments in (
        ("walk_records", span),
        ("decode_records", (EncodedRecords(*span, 10, 1_000), Record)),
        ("decode_records", (EncodedRecords(*span, 10, 1_000, 77), Record)),
        ("decode_keys", (*span, 10)),
        ("keep_records", (*span, mask, shift)),
    ):
        assert _outcome(compiled, name, *arguments) == _outcome(uncompiled_kernels, name, *arguments), name


def _malformed(payload: bytes, count: int = 1) -> bytes:
    batch = with_payload(encode_batch([(1, None, None, [])] * count), payload)
    return bytes(batch)


GOOD = b"\x0c\0\0\0\x01\x01\0"  # length 6, attributes, deltas 0, no key, no value, no headers


@pytest.mark.parametrize(
    ("story", "payload", "count"),
    [
        ("nothing", b"", 1),
        ("too few", GOOD, 2),
        ("too many", GOOD * 2, 1),
        ("a byte after", GOOD + b"\0", 1),
        ("length beyond the end", b"\x0e" + GOOD[1:], 1),
        ("negative length", b"\x01" + GOOD[1:], 1),
        ("length zero", b"\0" + GOOD[1:], 1),
        ("endless length", b"\xff" * 7, 1),
        ("key beyond the end", b"\x0c\0\0\0\x7e\x01\0", 1),
        ("huge key", b"\x14\0\0\0\xfe\xff\xff\xff\x0f\x01\0", 1),
        ("value beyond the end", b"\x0c\0\0\0\x01\x7e\0", 1),
        ("negative header count", b"\x0c\0\0\0\x01\x01\x01", 1),
        ("more headers than bytes", b"\x0c\0\0\0\x01\x01\x02", 1),
        ("a header without a key", b"\x10\0\0\0\x01\x01\x02\x01\x01", 1),
        ("header key beyond the end", b"\x10\0\0\0\x01\x01\x02\x7e\x01", 1),
        ("bytes after the headers", b"\x0e\0\0\0\x01\x01\0\0", 1),
        ("ends after attributes", b"\x02\0" + b"\0" * 5, 1),
    ],
)
def test_malformed_records_are_rejected(kernel: SimpleNamespace, story: str, payload: bytes, count: int) -> None:
    batch = _malformed(payload, count)
    for read in (decode_batch, decode_keys, lambda batch: retain(batch, 0, {0})):
        with pytest.raises(KafkaError) as caught:
            read(batch)
        assert caught.value.code is ErrorCode.INVALID_RECORD, story


def test_template_of_malformed_records_is_valid(kernel: SimpleNamespace) -> None:
    assert rows_of(decode_batch(_malformed(GOOD))) == [(1, None, None, [])]


def test_negative_lengths_below_minus_one_mean_null(kernel: SimpleNamespace) -> None:
    """Kafka's reader treats every negative size as null."""
    assert rows_of(decode_batch(_malformed(b"\x0c\0\0\0\x03\x05\0"))) == [(1, None, None, [])]


def test_invalid_utf8_in_header_key_is_replaced(kernel: SimpleNamespace) -> None:
    batch = with_payload(encode_batch([(1, None, None, [])]), b"\x12\0\0\0\x01\x01\x02\x02\xff\x01")
    assert decode_batch(batch)[0].headers == [("\ufffd", None)]


def test_a_huge_count_allocates_nothing(kernel: SimpleNamespace) -> None:
    with pytest.raises(KafkaError):
        kernel.decode_records(EncodedRecords(GOOD, 0, len(GOOD), 0x7FFFFFFF), Record)


def test_log_append_time_replaces_record_timestamps(kernel: SimpleNamespace) -> None:
    batch = encode_batch(ROWS, attributes=0x08)
    assert [record.timestamp for record in decode_batch(batch)] == [1_005] * 4


def test_offset_deltas_may_have_gaps(kernel: SimpleNamespace) -> None:
    batch = batch_with_deltas(ROWS, [0, 5, 6, 90])
    patch(batch, 0, 10, 0)
    assert [record.offset for record in decode_batch(batch)] == [10, 15, 16, 100]
    assert read_header(batch).last_offset == 100


@pytest.mark.parametrize("wrap", [bytearray, memoryview])
def test_fields_may_be_any_buffer(kernel: SimpleNamespace, wrap: type) -> None:
    batch = encode_batch([(1, wrap(b"k"), wrap(b"v"), [("h", wrap(b"x"))])])
    assert rows_of(decode_batch(batch)) == [(1, b"k", b"v", [("h", b"x")])]


@pytest.mark.parametrize("bad", [(1, "text", None, []), (1, None, 5, []), (1, None), ("now", None, None, [])])
def test_invalid_records_cannot_be_encoded(kernel: SimpleNamespace, bad: tuple) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_batch([(0, None, None, []), bad])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(kernel: SimpleNamespace, key: bytes, expected: int) -> None:
    assert kernel.murmur2(key) == expected & 0xFFFFFFFF
    assert kernel.murmur2(memoryview(key)) == expected & 0xFFFFFFFF


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("by_function", [False, True])
def test_retained_records_keep_their_offsets(kernel: SimpleNamespace, codec: Codec, by_function: bool) -> None:
    batch = encode_batch(ROWS, base_offset=50, codec=codec, leader_epoch=4, producer=BatchProducer(3, 1, 20))
    keep = (lambda offset, key, has_value: key in (b"key", b"")) if by_function else {50, 52, 99}
    left = retain(batch, 0, keep)
    assert left is not None
    assert check_crc(left, 0, len(left))
    assert [(record.offset, record.timestamp, record.key) for record in decode_batch(left)] == [
        (50, 1_000, b"key"),
        (52, 900, b""),
    ]
    before, after = read_header(batch), read_header(left)
    assert after.max_timestamp == 1_000
    assert (after.base_offset, after.last_offset, after.record_count) == (50, 53, 2)
    assert after.codec is codec
    assert after[9:12] == before[9:12]
    assert after.partition_leader_epoch == 4


def test_retain_does_not_copy_an_unchanged_batch(kernel: SimpleNamespace) -> None:
    batch = encode_batch(ROWS)
    left = retain(b"xx" + batch + b"yy", 2, range(4))
    assert isinstance(left, memoryview)
    assert left == batch


def test_retain_of_no_record_returns_none(kernel: SimpleNamespace) -> None:
    assert retain(encode_batch(ROWS), 0, ()) is None


@pytest.mark.parametrize("codec", CODECS)
def test_delete_horizon_is_set_once_and_changes_no_timestamp(kernel: SimpleNamespace, codec: Codec) -> None:
    batch: Buffer | None = encode_batch(ROWS, codec=codec)
    batch = retain(batch or b"", 0, {0, 2, 3}, 1 << 41)
    assert batch is not None
    assert check_crc(batch, 0, len(batch))
    assert read_header(batch).delete_horizon_ms == 1 << 41
    batch = retain(batch, 0, {2, 3}, 5)
    assert batch is not None
    assert read_header(batch).delete_horizon_ms == 1 << 41
    assert [record.timestamp for record in decode_batch(batch)] == [900, 1_000]
    assert read_header(batch).max_timestamp == 1_000


@pytest.mark.skipif(compiled_kernels() is None, reason="the kernels are not compiled here")
def test_records_are_untracked_by_the_collector_and_still_freed() -> None:
    records = decode_batch(encode_batch([(1, b"key", b"value", []), (2, None, None, [("name", b"x")])] * 1000))
    assert not any(gc.is_tracked(record) for record in records)
    assert not gc.is_tracked(records[0].headers)
    records[0].headers.append(("more", b"x"))
    gc.collect()
    assert records[0].headers == [("more", b"x")]
    counts = [sys.getrefcount(record) for record in records]
    assert len(set(counts)) == 1
    records.clear()
    gc.collect()


@pytest.mark.parametrize(("wish", "expected"), [("fallback", "False"), ("auto", str(compiled_kernels() is not None))])
def test_the_environment_chooses_the_kernels(wish: str, expected: str) -> None:
    """Importing the package must not import slow libraries either."""
    script = (
        "import sys; import ottla.records; from ottla.records import kernels; print(kernels.COMPILED);"
        "assert not {'cramjam', 'lz4', 'crc32c', 'importlib.metadata'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OTTLA_KERNELS": wish},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr
