"""`send_batch` with all layouts of Arrow columns: the batches contain the same rows."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.columns import Window, encode_rows
from ottla.clients.producer.settings import ProducerSettings
from ottla.records import EncodedRecords, Record, kernels
from ottla.records.murmur2 import partition_for_key

NOW = 1_000_000
PAIRS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


def batches_of(rows: Any, partitions: int = 1, **settings: Any) -> list[tuple[int, Any]]:
    groups = encode_rows(rows, partitions, ProducerSettings(**settings), NOW)
    return [piece for group in groups for piece in group]


def sent(rows: Any, partitions: int = 1, **settings: Any) -> list[tuple[Any, ...]]:
    """Partition, timestamp, key, value and headers of each row, in the order of the batches."""
    found = []
    for partition, (out, count, base, latest, _) in batches_of(rows, partitions, **settings):
        records = kernels.decode_records(EncodedRecords(bytes(out), 61, len(out), count, base_timestamp=base), Record)
        assert latest == max(record.timestamp for record in records)
        found += [(partition, r.timestamp, r.key, r.value, r.headers) for r in records]
    return found


def values(rows: Any) -> list[bytes | None]:
    return [row[3] for row in sent(rows)]


TEXT = ["a", None, "", "größe", "x" * 300]
BYTES = [None if text is None else text.encode() for text in TEXT]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_binary()),
    ],
    ids=str,
)  # fmt: skip
def test_values_and_keys_of_every_kind(kind: Any) -> None:
    is_text = any(word in str(kind) for word in ("string", "utf8"))
    column = pa.array(TEXT if is_text else BYTES, kind)
    assert values(pa.table({"value": column})) == BYTES
    assert values(pa.record_batch({"value": column}).slice(1, 3)) == BYTES[1:4]
    assert [row[2] for row in sent(pa.table({"key": column}))] == BYTES


def test_fixed_size_and_null_columns() -> None:
    assert values(pa.table({"value": pa.array([b"ab", None, b"cd"], pa.binary(2))})) == [b"ab", None, b"cd"]
    table = pa.table({name: pa.nulls(2) for name in ("key", "value", "partition", "timestamp", "headers")})
    assert sent(table) == [(0, NOW, None, None, [])] * 2
    assert values(pa.table({"value": pa.nulls(2, pa.string())})) == [None, None]


def test_table_without_rows_makes_no_batches() -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.binary()), ("partition", pa.int8()), ("headers", PAIRS)])
    assert sent(schema.empty_table()) == []
    assert sent(pa.record_batch({"value": pa.array([], pa.string())})) == []


def test_chunks_that_end_at_different_rows() -> None:
    keys = pa.chunked_array([[f"k{i}" for i in range(3)], [], ["k3"], [f"k{i}" for i in range(4, 2000)]])
    numbers = pa.chunked_array([[b"%d" % i for i in range(1500)], [b"%d" % i for i in range(1500, 2000)]])
    headers = pa.chunked_array([pa.array([[("n", b"%d" % i)] if i % 2 else None for i in range(2000)], PAIRS)])
    table = pa.table({"key": keys, "value": numbers, "headers": headers}).slice(1)
    rows = sorted(sent(table, 5), key=lambda row: int(row[3]))
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [
        (partition_for_key(b"k%d" % i, 5), b"k%d" % i, b"%d" % i, [("n", b"%d" % i)] if i % 2 else [])
        for i in range(1, 2000)
    ]


def test_many_small_chunks() -> None:
    column = pa.chunked_array([[f"{i}", None] for i in range(3000)])
    assert values(pa.table({"value": column})) == [f for i in range(3000) for f in (b"%d" % i, None)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([5, None, 7], pa.int32()), [5, NOW, 7]),
        (pa.array([5, None, 7], pa.uint64()), [5, NOW, 7]),
        (pa.array([5, None, 7], pa.timestamp("ms")), [5, NOW, 7]),
        (pa.array([5, None, 7], pa.timestamp("s", "Europe/Zurich")), [5000, NOW, 7000]),
        (pa.array([5_999, None, 7_000], pa.timestamp("us")), [5, NOW, 7]),
    ],
    ids=lambda column: str(getattr(column, "type", "")),
)
def test_timestamps_of_every_kind(column: Any, expected: list[int]) -> None:
    rows = pa.record_batch({"value": ["a", "b", "c"], "timestamp": column})
    assert [row[1] for row in sent(rows)] == expected
    assert [row[1] for row in sent(rows.slice(1))] == expected[1:]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_partitions_of_every_kind(kind: Any) -> None:
    rows = pa.record_batch({"key": ["a", "b", "c", "d"], "partition": pa.array([1, None, 0, 2], kind)})
    expected = {b"a": 1, b"b": partition_for_key(b"b", 3), b"c": 0, b"d": 2}
    assert {row[2]: row[0] for row in sent(rows, 3)} == expected
    assert {row[2]: row[0] for row in sent(rows.slice(1), 3)} == {k: p for k, p in expected.items() if k != b"a"}


LISTS: list[Any] = [[("a", b"1"), ("é", None)], None, [], [("b", b"")]]
EXPECTED = [[("a", b"1"), ("é", None)], [], [], [("b", b"")]]


@pytest.mark.parametrize(
    "kind",
    [
        PAIRS,
        pa.large_list(pa.struct([("k", pa.large_string()), ("v", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("k", pa.dictionary(pa.int8(), pa.string())), ("v", pa.binary_view())])),
    ],
    ids=str,
)
def test_headers_of_every_kind(kind: Any) -> None:
    if pa.types.is_map(kind):
        column = pa.array(LISTS, kind)
    else:
        names = [field.name for field in kind.value_type]
        pairs = [row and [dict(zip(names, pair, strict=True)) for pair in row] for row in LISTS]
        column = pa.array(pairs, PAIRS if "k" not in names else pa.list_(pa.struct([("k", "string"), ("v", "binary")])))
        column = pa.array(pairs, kind) if "dictionary" not in str(kind) else _with_dictionary(column, kind)
    rows = pa.record_batch({"value": ["0", "1", "2", "3"], "headers": column})
    assert [row[4] for row in sent(rows)] == EXPECTED
    assert [row[4] for row in sent(rows.slice(1))] == EXPECTED[1:]


def _with_dictionary(column: Any, kind: Any) -> Any:
    names, contents = column.values.field(0).dictionary_encode(), column.values.field(1).cast(pa.binary_view())
    entries = pa.StructArray.from_arrays([names, contents], names=["k", "v"])
    return pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null())


def test_header_names_must_be_text() -> None:
    kind = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.string())]))
    row = pa.record_batch({"value": ["v"], "headers": pa.array([[("é".encode(), "1")]], kind)})
    assert sent(row)[0][4] == [("é", b"1")]
    row = pa.record_batch({"value": ["v"], "headers": pa.array([[(b"\xff", "1")]], kind)})
    with pytest.raises(ValueError, match="UTF8"):
        sent(row)


def headers(*rows: Any) -> Any:
    return pa.array([*rows], PAIRS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"valeu": ["a"]}, "valeu"),
        ({"partition": [0]}, "needs a key or a value"),
        ({"value": [1.5]}, "neither binary nor string"),
        ({"value": pa.array([1], pa.int8())}, "neither binary nor string"),
        ({"value": ["a"], "partition": [3]}, "has 3 to 3; the topic has 0 to 2"),
        ({"value": ["a"], "partition": [-1]}, "0 to 2"),
        ({"value": ["a"], "partition": [1 << 32]}, "0 to 2"),
        ({"value": ["a"], "partition": ["0"]}, "must be integers"),
        ({"value": ["a"], "timestamp": [-1]}, "before 1970"),
        ({"value": ["a"], "timestamp": pa.array([-1], pa.timestamp("s"))}, "before 1970"),
        ({"value": ["a"], "timestamp": ["now"]}, "must be integers"),
        ({"value": ["a"], "timestamp": pa.array([1 << 63], pa.uint64())}, "not in range"),
        ({"value": ["a"], "headers": ["a"]}, "lists of structs"),
        ({"value": ["a"], "headers": [["a"]]}, "structs of name and value"),
        ({"value": ["a"], "headers": headers([None])}, "null"),
        ({"value": ["a"], "headers": headers([(None, b"a")])}, "without a name"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_columns_that_cannot_be_sent(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_rows(pa.table(columns), 3, ProducerSettings(), NOW)


def test_a_column_twice() -> None:
    with pytest.raises(ValueError, match="once"):
        encode_rows(pa.table([["a"], ["b"]], names=["value", "value"]), 3, ProducerSettings(), NOW)


def test_all_rows_are_checked_before_the_first_batch_is_returned() -> None:
    chunks = pa.chunked_array([["a"] * 1000, ["b" * 5000]])
    with pytest.raises(MessageTooLarge, match="5021 bytes"):
        encode_rows(pa.table({"value": chunks}), 3, ProducerSettings(max_request_size=5000), NOW)
    with pytest.raises(MessageTooLarge):
        encode_rows(pa.table({"value": chunks}), 3, ProducerSettings(buffer_memory=5000), NOW)
    big = headers([("n", b"x" * 5000)])
    with pytest.raises(MessageTooLarge):
        encode_rows(pa.table({"value": ["a"], "headers": big}), 3, ProducerSettings(max_request_size=5000), NOW)
    assert len(sent(pa.table({"value": chunks}), 3, max_request_size=5082)) == 1001


def test_batches_are_limited_by_batch_size_and_request_size() -> None:
    table = pa.table({"value": [b"v" * 991] * 100})  # 1000 bytes each with the other fields of a record
    assert {len(body[0]) - 61 for _, body in batches_of(table, batch_size=10_000)} == {10_000}
    assert {len(body[0]) for _, body in batches_of(table, max_request_size=5061)} == {5061}
    assert [body[1] for _, body in batches_of(table, batch_size=0)] == [1] * 100


def test_rows_without_key_change_partition_with_each_batch() -> None:
    table = pa.table({"value": [b"v" * 991] * 100})
    partitions = [partition for partition, _ in batches_of(table, 4, batch_size=10_000)]
    assert [(after - before) % 4 for before, after in pairwise(partitions)] == [1] * 9


def test_group_fills_a_request_and_a_quarter_of_the_memory_at_most() -> None:
    table = pa.table({"value": [b"v" * 991] * 4000})
    sizes = [
        sum(len(body[0]) for _, body in group)
        for group in encode_rows(table, 2, ProducerSettings(batch_size=100_000), 0)
    ]
    assert all(1 << 20 <= size < (1 << 20) + 200_000 for size in sizes[:-1])
    assert len(sizes) == 4
    small = ProducerSettings(batch_size=100_000, buffer_memory=400_000)
    sizes = [sum(len(body[0]) for _, body in group) for group in encode_rows(table, 2, small, 0)]
    assert max(sizes) < 300_000


def test_window_waits_until_half_of_it_is_free() -> None:
    batches = [SimpleNamespace(size=100) for _ in range(12)]
    window = Window(450)
    awaited = [window.add([first, second]) for first, second in zip(batches[::2], batches[1::2], strict=True)]
    assert awaited[:2] == [None, None]
    assert awaited[2] is batches[3], "of 600 bytes the first 400 must be released"
    assert awaited[3] is None
    assert awaited[4] is batches[7]
    assert window.add([]) is None


def test_rows_without_key_avoid_unavailable_partitions() -> None:
    settings = ProducerSettings(batch_size=500)
    table = pa.table({"value": ["x" * 100] * 60, "key": [None] * 60})
    for now_ms in range(5):
        groups = list(encode_rows(table, 5, settings, now_ms, [1, 2, 4]))
        used = [partition for group in groups for partition, _ in group]
        assert set(used) == {1, 2, 4}
        assert all(before != after for before, after in pairwise(used[:-1]))
    keyed = pa.table({"value": ["x"] * 50, "key": [f"k{i}" for i in range(50)]})
    groups = list(encode_rows(keyed, 5, settings, 0, [1, 2, 4]))
    assert {partition for group in groups for partition, _ in group} == {0, 1, 2, 3, 4}, "a key stays where it is"
