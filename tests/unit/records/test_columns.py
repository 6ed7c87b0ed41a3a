"""One suite over the compiled kernel that decodes batches into columns and its source, against `decode_batch`."""

import struct
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError
from ottla.common.kernels import is_compiled
from ottla.records import (
    BatchProducer,
    Codec,
    EncodedRecords,
    _decode_columns,
    decode_batch,
    encode_batch,
    encode_control_batch,
    patch,
    read_header,
    set_timestamps,
)
from ottla.records.batch import Buffer, seal
from ottla.records.builder import ControlType
from ottla.records.columns import BinaryColumn, RecordColumns
from ottla.records.reader import encoded_records
from tests.conftest import DRAWN_EXAMPLES
from tests.uncompiled import record_kernels

from .samples import CODECS, INT64, RECORDS, ROWS
from .test_mutations import BATCHES, _mutate, _seal_if_possible

MANY = settings(max_examples=DRAWN_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WIDE = 1 << 40
UNCOMPILED = record_kernels()["_decode_columns"]
Row = tuple[Any, ...]


def compiled_columns() -> ModuleType | None:
    return _decode_columns if is_compiled("ottla.records._decode_columns") else None


@pytest.fixture(params=["compiled", "uncompiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    found = UNCOMPILED if request.param == "uncompiled" else compiled_columns()
    if found is None:
        pytest.skip("the kernels are not compiled here")
    return found


def add(columns: Any, batch: Buffer, wanted: int = -(1 << 63), position: int = 0) -> int | None:
    """Add one batch, compressed or not."""
    header = read_header(batch, position)
    left: int | None = columns.add_records(encoded_records(batch, position, header), wanted)
    return left


def fields(column: BinaryColumn, count: int) -> Iterator[bytes | None]:
    """Check a column's bitmap and null count, and yield its fields."""
    ends = struct.unpack(f"={count + 1}i", column.ends)
    assert ends[0] == 0
    assert ends[-1] == len(column.data)
    assert len(column.validity) == (count + 7) // 8
    nulls = 0
    for index in range(count):
        valid = column.validity[index >> 3] >> (index & 7) & 1
        nulls += not valid
        assert valid or ends[index] == ends[index + 1]
        yield bytes(column.data[ends[index] : ends[index + 1]]) if valid else None
    assert nulls == column.nulls
    if count % 8:
        assert not column.validity[-1] >> count % 8, "bits after the last field"


def rows_of(columns: RecordColumns) -> list[Row]:
    """Convert columns to records."""
    rows = columns.rows
    offsets = struct.unpack(f"={rows}q", columns.offsets)
    timestamps = struct.unpack(f"={rows}q", columns.timestamps)
    keys, values = list(fields(columns.keys, rows)), list(fields(columns.values, rows))
    ends = struct.unpack(f"={rows + 1}i", columns.header_ends)
    names = list(fields(columns.header_names, ends[-1]))
    header_values = list(fields(columns.header_values, ends[-1]))
    headers = [(name.decode(), value) for name, value in zip(names, header_values, strict=True) if name is not None]
    assert len(headers) == ends[-1]
    return [
        (offsets[row], timestamps[row], keys[row], values[row], headers[ends[row] : ends[row + 1]])
        for row in range(rows)
    ]


def expected(batch: Buffer, wanted: int = -(1 << 63)) -> list[Row]:
    return [tuple(record) for record in decode_batch(batch) if record.offset >= wanted]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_columns_equal_the_decoded_records(module: ModuleType, codec: Codec, wrap: type) -> None:
    batch = encode_batch(ROWS, base_offset=100, codec=codec)
    columns = module.Columns(1000, WIDE)
    for _ in range(3):
        assert add(columns, wrap(batch)) is None
    assert (columns.rows, columns.full) == (12, False)
    assert rows_of(columns.close()) == 3 * expected(batch)


@MANY
@given(batches=st.lists(RECORDS, min_size=1, max_size=4), base_offset=INT64, expect=st.sampled_from([0, 1, 5000]))
@example(batches=[ROWS], base_offset=(1 << 63) - 2, expect=0)
def test_any_records_roundtrip(module: ModuleType, batches: list[list[Row]], base_offset: int, expect: int) -> None:
    """Offsets wrap at 64 bits, as in Java."""
    columns = module.Columns(1000, WIDE, expect)
    encoded = [encode_batch(rows, base_offset=base_offset) for rows in batches]
    for batch in encoded:
        assert add(columns, batch) is None
    assert rows_of(columns.close()) == [row for batch in encoded for row in expected(batch)]


@MANY
@given(rows=RECORDS, limit=st.integers(1, 25), most_bytes=st.sampled_from([1, 100, 300, WIDE]))
def test_large_batch_is_decoded_in_pieces(module: ModuleType, rows: list[Row], limit: int, most_bytes: int) -> None:
    batch = encode_batch(rows, base_offset=50)
    got: list[Row] = []
    following: int | None = 50
    while following is not None:
        columns = module.Columns(limit, most_bytes)
        left = add(columns, batch, following)
        assert 0 < columns.rows <= limit
        assert columns.size <= most_bytes or columns.rows == 1
        assert columns.full == (left is not None or columns.rows == limit or columns.size >= most_bytes)
        got += rows_of(columns.close())
        assert left is None or left == got[-1][0] + 1
        following = left
    assert got == expected(batch)


def log_of(*batches: Buffer) -> bytearray:
    """Join the batches, with the offsets that a log assigns."""
    log, offset = bytearray(), 0
    for batch in batches:
        patched = bytearray(batch)
        patch(patched, 0, offset, 7)
        offset = read_header(patched).next_offset
        log += patched
    return log


def test_plain_batches_are_decoded_in_one_call(module: ModuleType) -> None:
    stamped = bytearray(encode_batch(ROWS))
    set_timestamps(stamped, 0, 12_345, log_append=True)
    log = log_of(encode_batch(ROWS), stamped, encode_batch(ROWS))
    columns = module.Columns(1000, WIDE)
    assert columns.add_batches(memoryview(log), 0, 0, True) == (len(log), 12, 7)
    rows = rows_of(columns.close())
    assert [row[0] for row in rows] == list(range(12))
    assert [row[1] for row in rows] == [row[0] for row in ROWS] + 4 * [12_345] + [row[0] for row in ROWS]
    assert [row[2:] for row in rows] == 3 * [row[1:] for row in ROWS]


@pytest.mark.parametrize("wanted", range(13))
def test_records_before_the_wanted_offset_are_skipped(module: ModuleType, wanted: int) -> None:
    log = log_of(*3 * [encode_batch(ROWS)])
    columns = module.Columns(1000, WIDE)
    epoch = 7 if wanted < 12 else -1
    assert columns.add_batches(log, 0, wanted, True) == (len(log), max(12, wanted), epoch)
    assert [row[0] for row in rows_of(columns.close())] == list(range(wanted, 12))


def _crc_wrong(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def _malformed(batch: bytearray) -> bytearray:
    batch[60] += 1  # increases the record count
    seal(batch, 0)
    return batch


def _old(batch: bytearray) -> bytearray:
    batch[16] = 1
    return batch


@pytest.mark.parametrize(
    "stop",
    [
        bytearray(encode_batch(ROWS, codec=Codec.LZ4)),
        bytearray(encode_control_batch(ControlType.COMMIT, b"", 1, producer=BatchProducer(5), transactional=True)),
        bytearray(encode_control_batch(ControlType.LEADER_CHANGE, b"", 1)),
        _crc_wrong(encode_batch(ROWS)),
        _malformed(encode_batch(ROWS)),
    ],
    ids=["compressed", "marker", "control", "crc", "malformed"],
)  # fmt: skip
def test_decoding_stops_before_a_batch_that_is_not_plain(module: ModuleType, stop: bytearray) -> None:
    before = log_of(encode_batch(ROWS), encode_batch(ROWS))
    log = log_of(encode_batch(ROWS), encode_batch(ROWS), stop, encode_batch(ROWS))
    columns = module.Columns(1000, WIDE)
    assert columns.add_batches(log, 0, 2, True) == (len(before), 8, 7)
    assert columns.add_batches(log, len(before), 8, True) == (len(before), 8, -1)
    assert [row[0] for row in rows_of(columns.close())] == list(range(2, 8))


def test_crc_check_can_be_disabled(module: ModuleType) -> None:
    log = _crc_wrong(log_of(encode_batch([(1, b"k", b"v", [("h", b"x")])])))
    columns = module.Columns(10, WIDE)
    assert columns.add_batches(log, 0, 0, False) == (len(log), 1, 7)
    assert rows_of(columns.close()) == [(0, 1, b"k", b"v", [("h", b"y")])]


@pytest.mark.parametrize("size", [0, 60, 61, 100, -1])
def test_decoding_stops_before_an_incomplete_batch(module: ModuleType, size: int) -> None:
    columns = module.Columns(10, WIDE)
    assert columns.add_batches(log_of(encode_batch(ROWS))[:size], 0, 3, True) == (0, 3, -1)
    assert columns.rows == 0


def test_timestamp_run_ends_within_a_batch_when_columns_are_full(module: ModuleType) -> None:
    batch = encode_batch([(1, None, b"x" * 100, [])] * 10)
    log = log_of(*3 * [batch])
    got: list[Row] = []
    position = offset = 0
    while position < len(log):
        columns = module.Columns(7, WIDE)
        position, offset, _ = columns.add_batches(log, position, offset, True)
        got += rows_of(columns.close())
        assert offset == len(got)
    assert [row[0] for row in got] == list(range(30))


def test_malformed_batch_leaves_columns_unchanged(module: ModuleType) -> None:
    good = encode_batch(ROWS)
    whole = encode_batch([(5, b"key", b"value", [("name", b"x")]), (6, None, None, [("n", None)])] * 40)
    bad = bytearray(whole)
    bad[-1] = 2  # the last header's null value becomes one byte
    columns = module.Columns(1000, WIDE)
    assert add(columns, good) is None
    before = (columns.rows, columns.size, columns.full)
    with pytest.raises(KafkaError):
        add(columns, bad)
    assert (columns.rows, columns.size, columns.full) == before
    assert add(columns, good) is None
    assert rows_of(columns.close()) == 2 * expected(good)


def test_batch_malformed_beyond_the_limit_is_rejected(module: ModuleType) -> None:
    bad = _malformed(encode_batch(ROWS))
    columns = module.Columns(1, WIDE)
    with pytest.raises(KafkaError):
        add(columns, bad)
    assert (columns.rows, columns.full) == (0, False)


def test_invalid_utf8_in_header_names_is_replaced(module: ModuleType) -> None:
    batch = encode_batch([(0, None, None, [("größe", b"1"), ("abc", None)])])
    position = bytes(batch).index("größe".encode())
    batch[position + 2] = 0xFF
    columns = module.Columns(10, WIDE)
    add(columns, batch)
    name = "gr" + 2 * "\N{REPLACEMENT CHARACTER}" + "ße"
    assert rows_of(columns.close()) == expected(batch) == [(0, 0, None, None, [(name, b"1"), ("abc", None)])]


def _outcome(columns: Any, corrupted: bytes) -> object:
    """Return the result of one kernel for any bytes."""
    try:
        batches = columns.add_batches(corrupted, 0, 0, False)
        rest = add(columns, corrupted) if len(corrupted) >= 61 else None
    except KafkaError as error:
        return error.code, rows_of(columns.close())
    return batches, rest, columns.rows, columns.size, columns.full, rows_of(columns.close())


@settings(max_examples=3 * DRAWN_EXAMPLES, deadline=None)
@given(codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]), most=st.integers(1, 30), data=st.data())
def test_both_column_kernels_agree_on_mutated_batches(codec: Codec, most: int, data: st.DataObject) -> None:
    compiled = compiled_columns()
    if compiled is None:
        pytest.skip("the kernels are not compiled here")
    corrupted = _mutate(BATCHES[codec], data)
    if data.draw(st.booleans()):
        _seal_if_possible(corrupted)
    most_bytes = data.draw(st.sampled_from([50, WIDE]))
    first, second = (_outcome(module.Columns(most, most_bytes), bytes(corrupted)) for module in (compiled, UNCOMPILED))
    assert first == second


@MANY
@given(codec=st.sampled_from(CODECS), data=st.data())
def test_mutated_batches_decode_alike_to_columns_and_records(
    module: ModuleType, codec: Codec, data: st.DataObject
) -> None:
    corrupted = bytes(_mutate(BATCHES[codec], data))
    columns = module.Columns(1000, WIDE)
    try:
        records: object = expected(corrupted)
    except KafkaError as error:
        records = error.code
    try:
        add(columns, corrupted)
        found: object = rows_of(columns.close())
    except KafkaError as error:
        found = error.code
    assert found == records


def test_false_sizes_allocate_no_memory(module: ModuleType) -> None:
    batch = encode_batch(ROWS)
    batch[57:61] = b"\x7f\xff\xff\xff"
    seal(batch, 0)
    tracemalloc.start()
    try:
        columns = module.Columns((1 << 31) - 1, WIDE)
        with pytest.raises(KafkaError):
            add(columns, batch)
        assert columns.add_batches(batch, 0, 0, True) == (0, 0, -1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_wrong_arguments_raise_python_errors(module: ModuleType) -> None:
    for most in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError, match="at least 1 row and 1 byte"):
            module.Columns(*most)
    columns = module.Columns(1, 1)
    with pytest.raises(IndexError):
        columns.add_records(EncodedRecords(b"abc", 0, 4, 0), 0)
    with pytest.raises(IndexError):
        columns.add_records(EncodedRecords(b"abc", 2, 1, 0), 0)
    with pytest.raises(IndexError):
        columns.add_batches(b"", -1, 0, True)
    assert rows_of(columns.close()) == []
    for work in (columns.close, lambda: columns.add_batches(b"", 0, 0, True)):
        with pytest.raises(ValueError, match="closed"):
            work()


def test_texts_are_repeated(module: ModuleType) -> None:
    column = module.repeat_texts([(b"ab", 3), (b"", 2), ("größe".encode(), 1)])
    assert struct.unpack("=7i", column.ends) == (0, 2, 4, 6, 6, 6, 13)
    assert column.data == b"ababab" + "größe".encode()
    assert struct.unpack("=i", module.repeat_texts([]).ends) == (0,)
    with pytest.raises(ValueError, match="negative"):
        module.repeat_texts([(b"a", -1)])
    with pytest.raises(ValueError, match="exceeds"):
        module.repeat_texts([(b"a" * 1024, 1 << 20), (b"b" * 1024, 1 << 20)])


@MANY
@given(data=st.data())
def test_whole_batches_are_found(module: ModuleType, data: st.DataObject) -> None:
    log = log_of(*3 * [encode_batch(ROWS[:3])])
    third = len(log) // 3
    assert module.whole_batches(memoryview(log)) == (9, len(log))
    size = data.draw(st.integers(0, len(log)))
    assert module.whole_batches(log[:size]) == (3 * (size // third) or -1, size // third * third)
    corrupted = bytes(_mutate(bytes(log), data))
    assert module.whole_batches(corrupted) == UNCOMPILED.whole_batches(corrupted)
