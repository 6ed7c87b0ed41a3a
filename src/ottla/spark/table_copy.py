"""Compacted copies of tables in a Python worker: a micro-batch reads only what its predecessors have not read.

Spark reuses its Python workers. A worker keeps the latest record of each key of the tables that its tasks have read, up
to a position in each partition. The copy depends on the records before these positions only, so a copy and a new read
of the topic are equal. Memory is limited (`COPIES_BYTES`): the copies that were not used for the longest time are
dropped, and a larger table is read from the beginning in each micro-batch.

Each partition has a copy of its own: offsets order the records of one partition only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

COPIES_BYTES: Final = 256 * 1024 * 1024
"""The most memory of all copies in a worker."""
CHUNK_ROWS: Final = 65_536
CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Chunks of a copy are not joined beyond these sizes: a changed key copies its chunk."""
Decode = Callable[[Any], Any]
"""Converts records with bytes to the rows that the copy has; the column `key` stays the same."""


@dataclass
class PartitionCopy:
    """The rows with the latest record of each key before `position`."""

    position: int = 0
    first: int = 0
    """No record before this offset is in the copy."""
    chunks: list[Any] = field(default_factory=list)

    def add(self, records: Any, decode: Decode) -> None:
        """Take records that follow the earlier ones, in the order of their offsets. Records without a key are skipped.

        A record without a value deletes its key.
        """
        latest = latest_by_key(records)
        if not latest.num_rows:
            return
        self._remove(latest.column("key"))
        rows = latest.filter(pc.is_valid(latest.column("value")))
        for start in range(0, rows.num_rows, CHUNK_ROWS):
            self.chunks.append(decode(rows.slice(start, CHUNK_ROWS)))
        self._merge()

    def drop_before(self, first: int) -> None:
        """Remove the rows of records that are not in the log any more, because it begins at `first` now."""
        if first > self.first:
            self.first = first
            self.chunks = [chunk.filter(pc.greater_equal(chunk.column("offset"), first)) for chunk in self.chunks]
            self._merge()

    def _remove(self, keys: Any) -> None:
        for index, chunk in enumerate(self.chunks):
            is_old = pc.is_in(chunk.column("key"), value_set=keys)
            if pc.any(is_old).as_py():
                self.chunks[index] = chunk.filter(pc.invert(is_old))

    def _merge(self) -> None:
        """Join small chunks: each is at most half as large as its predecessor, so there are few."""
        merged: list[Any] = []
        for chunk in self.chunks:
            if not chunk.num_rows:
                continue
            merged.append(chunk)
            while (
                len(merged) > 1
                and merged[-2].num_rows <= 2 * merged[-1].num_rows
                and merged[-2].num_rows + merged[-1].num_rows <= CHUNK_ROWS
                and merged[-2].nbytes + merged[-1].nbytes <= CHUNK_BYTES
            ):
                last = merged.pop()
                (merged[-1],) = pa.Table.from_batches([merged[-1], last]).combine_chunks().to_batches()
        self.chunks = merged


def latest_by_key(records: Any) -> Any:
    """Return the last row of each key, in the order of the rows. Rows without a key are omitted."""
    if records.column("key").null_count:
        records = records.filter(pc.is_valid(records.column("key")))
    rows = records.num_rows
    numbered = pa.table({"key": records.column("key"), "row": pa.array(range(rows), pa.int64())})
    last = numbered.group_by("key").aggregate([("row", "max")]).column("row_max")
    if len(last) == rows:
        return records
    return records.take(last.combine_chunks().sort())


@dataclass
class TableCopy:
    """The copies of the partitions of a topic, by partition."""

    topic_id: str = ""
    partitions: dict[int, PartitionCopy] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(chunk.nbytes for each in self.partitions.values() for chunk in each.chunks)

    def rows(self) -> Iterator[Any]:
        """Yield the rows of all partitions. A key in several partitions has the row with the latest timestamp."""
        chunks = [chunk for _, each in sorted(self.partitions.items()) for chunk in each.chunks]
        if not self._has_key_in_several_partitions():
            yield from chunks
            return
        table = pa.Table.from_batches(chunks)
        numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
        order = numbered.sort_by([("timestamp", "ascending"), ("row", "ascending")])
        yield from latest_by_key(order.drop_columns(["row"]).combine_chunks()).to_batches()

    def _has_key_in_several_partitions(self) -> bool:
        with_rows = [each for each in self.partitions.values() if each.chunks]
        if len(with_rows) < 2:
            return False
        keys = pa.chunked_array([chunk.column("key") for each in with_rows for chunk in each.chunks])
        return bool(pc.count_distinct(keys).as_py() < len(keys))


class Copies:
    """The copies of a worker. A copy is not in here while a task uses it, so an exception drops it."""

    def __init__(self, limit: int = COPIES_BYTES) -> None:
        self._limit = limit
        self._copies: OrderedDict[Hashable, TableCopy] = OrderedDict()

    def take(self, key: Hashable) -> TableCopy:
        """Return the copy of a table; an empty one if there is none."""
        return self._copies.pop(key, None) or TableCopy()

    def put(self, key: Hashable, copy: TableCopy) -> None:
        """Store a copy, and drop those that were not used for the longest time if they need too much memory."""
        if copy.size > self._limit:
            return
        self._copies[key] = copy
        size = sum(each.size for each in self._copies.values())
        while size > self._limit:
            size -= self._copies.popitem(last=False)[1].size
