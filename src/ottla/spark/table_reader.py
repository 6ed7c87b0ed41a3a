"""Reads a table in a task: finds what the micro-batch sees, brings the worker's copy up to it, and yields its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from ottla.common.ids import TopicPartition
from ottla.spark.formats import decode
from ottla.spark.offsets import OffsetRange, Positions
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import read_range
from ottla.spark.table_copy import Copies, Decode, PartitionCopy, TableCopy
from ottla.spark.table_ends import Extent, MicroBatch, TablePlace, find_extent
from ottla.spark.table_options import COLUMNS, TableOptions

GATHERED_BYTES: Final = 32 * 1024 * 1024
"""Records are added to a copy in pieces of about this size: each piece is compared with the keys of the copy."""

_copies = Copies()


def read_table(
    options: TableOptions, task: int, fixed: Positions | None, get_property: Callable[[str], str | None]
) -> Iterator[Any]:
    """Return the rows of a task as Arrow batches. `fixed` are the ends of a table as it was.

    Raises TableError, FormatError, ClientError.
    """
    source = options.source
    batch = MicroBatch.of_task(get_property) if fixed is None else None
    place = TablePlace(options.topic, source.client, source.isolation_level, options.prefix)
    extent = find_extent(place, batch, task, fixed)
    key = _key(options, task, fixed, batch)
    copy = _copies.take(key)
    if copy.topic_id != extent.topic_id or not _is_within(copy, extent):
        copy = TableCopy(extent.topic_id)
    for tp, end in sorted(extent.ends.items()):
        if tp.partition % options.tasks == task:
            part = copy.partitions.setdefault(tp.partition, PartitionCopy())
            _advance(part, tp, extent.firsts.get(tp, 0), end, source)
    rows = list(copy.rows())
    _copies.put(key, copy)
    return iter(rows)


def _key(options: TableOptions, task: int, fixed: Positions | None, batch: MicroBatch | None) -> Hashable:
    """Return a key for each different copy. Queries do not share copies, because they are at different positions."""
    source = options.source
    client = (tuple(sorted(source.client.items())), source.isolation_level)
    formats = (source.value_format, tuple(sorted(source.formats.items())))
    reads = (options.tasks, task, fixed is None, batch and batch.query)
    return client, options.topic, formats, reads


def _is_within(copy: TableCopy, extent: Extent) -> bool:
    """Whether the copy has no record after the ends."""
    ends = {tp.partition: end for tp, end in extent.ends.items()}
    return all(part.position <= ends.get(partition, -1) for partition, part in copy.partitions.items())


def _advance(part: PartitionCopy, tp: TopicPartition, first: int, end: int, source: SourceOptions) -> None:
    """Read the records of a partition that the copy does not have."""
    part.drop_before(first)
    start = max(part.position, first)
    if start < end:
        gathered: list[Any] = []
        size = 0
        wanted = OffsetRange(tp.topic, tp.partition, start, end)
        client = dict(source.client)
        # Records that are deleted while they are read do not belong to the table any more.
        for records in read_range(client, wanted, isolation_level=source.isolation_level, fail_on_data_loss=False):
            gathered.append(records)
            size += records.nbytes
            if size >= GATHERED_BYTES:
                _add(part, gathered, source)
                gathered, size = [], 0
        if gathered:
            _add(part, gathered, source)
    part.position = max(part.position, end)


def _add(part: PartitionCopy, gathered: list[Any], source: SourceOptions) -> None:
    (records,) = pa.Table.from_batches(gathered).combine_chunks().to_batches()
    part.add(records, _decoder(source))


def _decoder(source: SourceOptions) -> Decode:
    return partial(_decoded, source)


def _decoded(source: SourceOptions, records: Any) -> Any:
    """Return the columns of a table, with typed values. Raises FormatError."""
    if source.value_format != "raw":
        (records,) = decode(iter((records,)), source)
    return records.select(list(COLUMNS))
