"""The column encoder, compiled and from its source, compared with the encoder of single records."""

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.common.kernels import is_compiled
from ottla.records import EncodedRecords, Record, _encode_columns, kernels
from ottla.records.murmur2 import partition_for_key
from tests.conftest import DRAWN_EXAMPLES
from tests.uncompiled import record_kernels

from .samples import FIELD, HEADERS

HUGE = 1 << 40
UNCOMPILED = record_kernels()["_encode_columns"]
Row = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]
BOTH = settings(max_examples=DRAWN_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def compiled() -> ModuleType | None:
    return _encode_columns if is_compiled("ottla.records._encode_columns") else None


@pytest.fixture(params=["compiled", "uncompiled"])
def columns(request: pytest.FixtureRequest) -> ModuleType:
    module = UNCOMPILED if request.param == "uncompiled" else compiled()
    if module is None:
        pytest.skip("the kernels are not compiled here")
    return module


def bitmap(flags: list[bool], first: int) -> bytes:
    """Return an Arrow bitmap with meaningless bits before position `first`."""
    out = bytearray((first + len(flags) + 7) // 8)
    for place, flag in enumerate([index % 2 == 0 for index in range(first)] + flags):
        out[place >> 3] |= flag << (place & 7)
    return bytes(out)


def strings(fields: list[bytes | None], first: int = 0, wide: bool = False) -> tuple[Any, ...]:
    """Return a column in Arrow's layout, after `first` other rows."""
    before = [b"#" * (index % 3) for index in range(first)]
    offsets = [0]
    for field in [*before, *fields]:
        offsets.append(offsets[-1] + len(field or b""))
    data = b"".join([*before, *(field or b"" for field in fields)])
    validity = bitmap([field is not None for field in fields], first) if None in fields else None
    return validity, struct.pack(f"<{len(offsets)}{'q' if wide else 'i'}", *offsets), data or None, first, wide


def numbers(values: list[int | None], form: str, first: int = 0) -> tuple[Any, ...]:
    filled = [-7] * first + [-5 if value is None else value for value in values]
    validity = bitmap([value is not None for value in values], first) if None in values else None
    return validity, struct.pack(f"<{len(filled)}{form}", *filled), first


def header_lists(rows: list[list[tuple[str, bytes | None]]], first: int = 0, wide: bool = False) -> tuple[Any, ...]:
    pairs = [("before", b"!")] * first + [pair for row in rows for pair in row]
    offsets = list(range(first + 1))
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    validity = bitmap([bool(row) for row in rows], first) if any(not row for row in rows) else None
    names = strings([name.encode() for name, _ in pairs], 1, wide)
    values = strings([value for _, value in pairs], 2, not wide)
    return (
        validity,
        struct.pack(f"<{len(offsets)}{'q' if wide else 'i'}", *offsets),
        first,
        wide,
        names,
        values,
        len(pairs),
    )


def make(columns: ModuleType, rows: list[Row], first: int = 0, wide: bool = False) -> Any:
    timestamps, keys, values, headers, partitions = ([row[index] for row in rows] for index in range(5))
    return columns.Rows(
        len(rows),
        strings(keys, first, wide),
        strings(values, first + 1, not wide),
        numbers(partitions, "i", first),
        numbers(timestamps, "q", first + 2),
        header_lists(headers, first, wide),
    )


def encode(encoder: Any, *chunks: Any) -> list[Any]:
    batches = []
    for chunk in chunks:
        encoder.take(chunk)
        while full := encoder.encode():
            batches += full
    return batches + encoder.finish()


def values_only(columns: ModuleType, values: list[bytes | None]) -> Any:
    return columns.Rows(len(values), None, strings(values), None, None, None)


def rows_of(body: tuple[Any, ...]) -> list[Any]:
    out, count, base, *_ = body
    records = kernels.decode_records(EncodedRecords(bytes(out), 61, len(out), count, base_timestamp=base), Record)
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, (1 << 63) - 1), FIELD, FIELD, HEADERS, st.none() | st.integers(0, 3)),
    max_size=25,
)


@BOTH
@given(rows=ROWS, first=st.integers(0, 11), wide=st.booleans(), split=st.integers(0, 25))
def test_column_encoder_writes_the_bytes_of_the_record_encoder(
    columns: ModuleType, rows: list[Row], first: int, wide: bool, split: int
) -> None:
    expected: dict[int, list[Any]] = {}
    for timestamp, key, value, headers, partition in rows:
        if partition is None:
            partition = 3 if key is None else partition_for_key(key, 5)
        row = (1_234 if timestamp is None else timestamp, key, value, headers)
        expected.setdefault(partition, []).append(row)
    encoder = columns.RowEncoder(5, HUGE, HUGE, 1_234, 3)
    chunks = (make(columns, rows[:split], first, wide), make(columns, rows[split:], 0, not wide))
    assert encode(encoder, *chunks) == [
        (partition, kernels.encode_records(expected[partition], None)) for partition in sorted(expected)
    ]


@BOTH
@given(rows=ROWS, batch_size=st.integers(0, 600), room=st.sampled_from([0, 100, 1000, HUGE]), sticky=st.integers(0, 3))
def test_each_row_is_encoded_once_in_order_within_batch_size(
    columns: ModuleType, rows: list[Row], batch_size: int, room: int, sticky: int
) -> None:
    rows = [(index, *row[1:]) for index, row in enumerate(rows)]
    encoder = columns.RowEncoder(5, batch_size, room, 0, sticky)
    places: dict[int, int] = {}
    last = [-1] * 5
    for partition, body in encode(encoder, make(columns, rows)):
        records = rows_of(body)
        assert body == kernels.encode_records(records, None)
        assert len(body[0]) - 61 <= batch_size or len(records) == 1
        for record in records:
            assert record == rows[record[0]][:4]
            assert record[0] not in places
            assert record[0] > last[partition], "rows keep their order within a partition"
            places[record[0]] = partition
            last[partition] = record[0]
    assert sorted(places) == list(range(len(rows)))
    for index, (_, key, _, _, partition) in enumerate(rows):
        if partition is not None:
            assert places[index] == partition
        elif key is not None:
            assert places[index] == partition_for_key(key, 5)


@pytest.mark.skipif(compiled() is None, reason="the kernels are not compiled here")
@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@given(rows=ROWS, batch_size=st.integers(0, 600), room=st.sampled_from([0, 100, 1000, HUGE]))
def test_both_encoders_build_the_same_batches(rows: list[Row], batch_size: int, room: int) -> None:
    outcomes = []
    for module in (UNCOMPILED, compiled()):
        assert module is not None
        chunk = make(module, rows)
        batches = encode(module.RowEncoder(5, batch_size, room, 5, 1), chunk)
        outcomes.append((batches, chunk.largest, chunk.earliest))
    assert outcomes[0] == outcomes[1]


def test_sticky_partition_changes_when_its_batch_is_full(columns: ModuleType) -> None:
    encoder = columns.RowEncoder(3, 300, HUGE, 0, 2)
    batches = encode(encoder, values_only(columns, [b"v" * 91] * 9))  # each record has 100 bytes
    assert [(partition, body[1]) for partition, body in batches] == [(2, 3), (0, 3), (1, 3)]
    assert len(batches[0][1][0]) == 61 + 300


def test_sticky_partition_stays_when_another_batch_is_full(columns: ModuleType) -> None:
    encoder = columns.RowEncoder(2, 300, HUGE, 0, 0)
    rows: list[Row] = [(None, None, b"v" * 91, [], 1 if index < 4 else None) for index in range(6)]
    assert [(partition, body[1]) for partition, body in encode(encoder, make(columns, rows))] == [
        (1, 3),
        (0, 2),
        (1, 1),
    ]


def test_all_open_batches_are_returned_when_room_is_used_up(columns: ModuleType) -> None:
    encoder = columns.RowEncoder(3, HUGE, 350, 0, 0)
    rows: list[Row] = [(None, None, b"v" * 91, [], index % 3) for index in range(5)]
    encoder.take(make(columns, rows))
    assert [(partition, body[1]) for partition, body in encoder.encode()] == [(0, 2), (1, 1), (2, 1)]
    assert encoder.encode() == []
    assert [(partition, body[1]) for partition, body in encoder.finish()] == [(1, 1)]
    assert encoder.finish() == []


def test_rows_report_largest_size_and_earliest_timestamp(columns: ModuleType) -> None:
    rows: list[Row] = [(5, b"kk", b"vvv", [("é", b"xy"), ("n", None)], None), (-3, None, None, [], None)]
    chunk = make(columns, rows)
    assert chunk.largest == 21 + 5 + (10 + 2 + 2) + (10 + 1)
    assert chunk.earliest == -3
    assert values_only(columns, []).largest == 0


def test_rows_hold_references_to_their_buffers(columns: ModuleType) -> None:
    chunk = values_only(columns, [b"%d" % index * 1000 for index in range(10)])
    other = [bytes(10_000) for _ in range(100)]  # would reuse the memory if it were freed
    (batch,) = encode(columns.RowEncoder(1, HUGE, HUGE, 0, 0), chunk)
    assert [row[2] for row in rows_of(batch[1])] == [b"%d" % index * 1000 for index in range(10)]
    assert len(other) == 100


GOOD = strings([b"a", b"bc"])
HARMED = [
    ("offsets beyond the data", (None, struct.pack("<3i", 0, 1, 4), b"abc", 0, False)),
    ("offsets without data", (None, struct.pack("<3i", 0, 1, 3), None, 0, False)),
    ("offsets that descend", (None, struct.pack("<3i", 2, 1, 3), b"abc", 0, False)),
    ("a negative offset", (None, struct.pack("<3i", -1, 1, 3), b"abc", 0, False)),
    ("wide offsets that descend", (None, struct.pack("<3q", 0, 1 << 62, 3), b"abc", 0, True)),
    ("too few offsets", (None, struct.pack("<2i", 0, 1), b"abc", 0, False)),
    ("too few offsets for the place", (None, struct.pack("<3i", 0, 1, 3), b"abc", 1, False)),
    ("a negative place", (None, struct.pack("<3i", 0, 1, 3), b"abc", -1, False)),
    ("no bitmap", (b"", struct.pack("<3i", 0, 1, 3), b"abc", 0, False)),
    ("a bitmap that ends early", (b"\xff", struct.pack("<10i", *range(10)), b"abcdefghi", 7, False)),
]


@pytest.mark.parametrize(("story", "column"), HARMED, ids=[story for story, _ in HARMED])
def test_corrupt_columns_are_rejected(columns: ModuleType, story: str, column: tuple[Any, ...]) -> None:
    for key, value in ((column, GOOD), (GOOD, column)):
        with pytest.raises(ValueError, match="corrupt"):
            columns.Rows(2, key, value, None, None, None)
    lists = (None, struct.pack("<3i", 0, 1, 2), 0, False)
    for names, values in ((column, GOOD), (GOOD, column)):
        with pytest.raises(ValueError, match="corrupt"):
            columns.Rows(2, None, GOOD, None, None, (*lists, names, values, 2))


def test_corrupt_numbers_and_header_lists_are_rejected(columns: ModuleType) -> None:
    for corrupted in ((None, bytes(7), 0), (None, bytes(64), 15), (b"", bytes(64), 0)):
        with pytest.raises(ValueError, match="corrupt"):
            columns.Rows(2, None, GOOD, corrupted, None, None)
        with pytest.raises(ValueError, match="corrupt"):
            columns.Rows(2, None, GOOD, None, corrupted, None)
    for offsets in ((0, 1, 3), (0, 2, 1), (-1, 0, 1)):
        with pytest.raises(ValueError, match="corrupt"):
            columns.Rows(2, None, GOOD, None, None, (None, struct.pack("<3i", *offsets), 0, False, GOOD, GOOD, 2))
    nameless = strings([b"a", None])
    with pytest.raises(ValueError, match="without a name"):
        columns.Rows(2, None, GOOD, None, None, (None, struct.pack("<3i", 0, 1, 2), 0, False, nameless, GOOD, 2))


def test_unknown_partitions_are_rejected(columns: ModuleType) -> None:
    for partition in (-1, 2, 1 << 30):
        encoder = columns.RowEncoder(2, HUGE, HUGE, 0, 0)
        encoder.take(columns.Rows(1, None, strings([b""]), numbers([partition], "i"), None, None))
        with pytest.raises(ValueError, match=str(partition)):
            encoder.encode()
    for partitions, sticky in ((0, 0), (2, 2), (2, -1)):
        with pytest.raises(ValueError, match="not among"):
            columns.RowEncoder(partitions, HUGE, HUGE, 0, sticky)
    for after in ([0], [0, 2], [-1, 0], [0, 1, 0]):
        with pytest.raises(ValueError, match="`after` must have"):
            columns.RowEncoder(2, HUGE, HUGE, 0, 0, after)


def test_take_rejects_new_rows_before_all_are_encoded(columns: ModuleType) -> None:
    encoder = columns.RowEncoder(1, 0, HUGE, 0, 0)
    assert encoder.encode() == []
    encoder.take(values_only(columns, [b"a", b"b", b"c"]))
    assert len(encoder.encode()) == 1
    with pytest.raises(ValueError, match="not encoded"):
        encoder.take(values_only(columns, []))
