"""Looks up one key of a table: reads the key's partition backwards, without Java and with little memory.

Values need neither pyspark nor pyarrow; a table as it was needs pyarrow.

A lookup reads pieces of the partition from its end, each four times as large as the piece before it, until a record has
the key. So a key that changed recently is found at once, and one that does not exist costs a read of the partition.
Records of open and aborted transactions are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients.admin import Admin, OffsetSpec
from ottla.common.ids import TopicPartition
from ottla.records.murmur2 import partition_for_key
from ottla.spark.format_errors import FormatError as FormatError  # noqa: PLC0414 - re-exported
from ottla.spark.names import OptionError as OptionError  # noqa: PLC0414 - re-exported
from ottla.spark.offsets import OffsetRange, Positions
from ottla.spark.options import SourceOptions, common_settings, read_source_options
from ottla.spark.range_columns import read_columns
from ottla.spark.table_ends import TableError as TableError  # noqa: PLC0414 - re-exported
from ottla.streams import late
from ottla.streams.declarations import AsOf, Table
from ottla.streams.errors import StreamsError
from ottla.streams.settings import default_bootstrap, options_of_table

if TYPE_CHECKING:
    from ottla.records.columns import BinaryColumn, RecordColumns

FIRST_PIECE: Final = 1_000
LARGEST_PIECE: Final = 1_000_000
"""Offsets that are read before the next piece."""


@dataclass(frozen=True)
class Found:
    """The latest record of a key. `value` is None if the record deletes the key."""

    partition: int
    offset: int
    timestamp_ms: int
    value: Any


class Stored(NamedTuple):
    """A record as it is in the topic."""

    place: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


def get(table: Table, key: str | bytes, bootstrap: str | None, client: Mapping[str, str] | None) -> Any:
    """Return the value of a key: a dictionary for a value with fields, else text or bytes; None without such a key.

    Raises StreamsError, TableError, OptionError, FormatError, ClientError.
    """
    found = find(table, key, {"bootstrap.servers": bootstrap or default_bootstrap(), **(client or {})})
    return None if found is None else found.value


def find(table: Table, key: str | bytes, client: Mapping[str, str], *, all_partitions: bool = False) -> Found | None:
    """Return the latest record of a key, of its partition or with the latest timestamp of all partitions.

    Kafka's default partitioner chooses the partition. Raises StreamsError, TableError, OptionError, FormatError,
    ClientError.
    """
    wanted = key.encode() if isinstance(key, str) else key
    options = options_of_table(table, {f"kafka.{name}": value for name, value in client.items()})
    source = read_source_options({**options, "kafka.isolation.level": "read_committed"}, streaming=False)
    with Admin(common_settings(source.client)) as admin:
        partitions = [each.partition for each in admin.describe_topic(table.topic).partitions]
        if not all_partitions:
            partitions = [partition_for_key(wanted, len(partitions))]
        places = [TopicPartition(table.topic, partition) for partition in partitions]
        firsts = admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        ends = _ends(admin, places, table.as_of)
        found = []
        for tp in places:
            if table.as_of is not None:
                late.table_history.check_history(admin, source, tp, firsts[tp].offset, ends[tp])
            record = _latest(dict(source.client), wanted, tp, firsts[tp].offset, ends[tp])
            if record is not None:
                found.append(record)
    if not found:
        return None
    latest = max(found, key=lambda record: record.timestamp_ms)
    value = _value(latest, table, source)
    return Found(latest.place.partition, latest.offset, latest.timestamp_ms, value)


def _ends(admin: Admin, places: list[TopicPartition], as_of: AsOf | None) -> Positions:
    """Return the offsets before which the records are searched."""
    latest = admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST), read_committed=True)
    ends = {tp: row.offset for tp, row in latest.items()}
    if as_of is None:
        return ends
    if isinstance(as_of, int):
        at = {tp: row.offset for tp, row in admin.list_offsets(dict.fromkeys(places, as_of)).items()}
        return {tp: end if at[tp] < 0 else min(at[tp], end) for tp, end in ends.items()}
    given = dict(as_of)
    missing = [tp for tp in places if tp.partition not in given]
    if missing:
        raise StreamsError(f"as_of has no offset for {missing[0]}")
    return {tp: min(given[tp.partition], end) for tp, end in ends.items()}


def _latest(client: dict[str, str], key: bytes, tp: TopicPartition, first: int, end: int) -> Stored | None:
    """Return the last record of a key; None without one."""
    size = FIRST_PIECE
    while end > first:
        start = max(first, end - size)
        last = None
        wanted = OffsetRange(tp.topic, tp.partition, start, end)
        for columns in read_columns(client, wanted, isolation_level="read_committed", fail_on_data_loss=False):
            last = _last_of(columns, key, tp, end) or last
        if last is not None:
            return last
        end, size = start, min(4 * size, LARGEST_PIECE)
    return None


def _last_of(columns: RecordColumns, key: bytes, tp: TopicPartition, end: int) -> Stored | None:
    """Return the last record of a key before the offset `end`."""
    data, ends = columns.keys.data, memoryview(columns.keys.ends).cast("i")
    for row in range(columns.rows - 1, -1, -1):
        if data[ends[row] : ends[row + 1]] == key and _bytes_of(columns.keys, row) is not None:
            offset = memoryview(columns.offsets).cast("q")[row]
            if offset < end:
                timestamp_ms = memoryview(columns.timestamps).cast("q")[row]
                return Stored(tp, offset, timestamp_ms, key, _bytes_of(columns.values, row))
    return None


def _bytes_of(column: BinaryColumn, row: int) -> bytes | None:
    if column.nulls and not column.validity[row // 8] >> row % 8 & 1:
        return None
    ends = memoryview(column.ends).cast("i")
    return bytes(column.data[ends[row] : ends[row + 1]])


def _value(record: Stored, table: Table, source: SourceOptions) -> Any:
    """Return the value in its format. Raises FormatError, and OptionError for an unusable schema or missing package."""
    if record.value is None:
        return None
    if source.value_format != "raw":
        return late.lookup_values.decode_value(record, source)
    return record.value.decode("utf-8", "replace") if table.value == "text" else record.value
