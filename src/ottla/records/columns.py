"""Records as columns in Arrow's layout; `column_kernels.Columns` fills them and returns them as plain buffers.

Numbers are in the machine's byte order. The ends of binary fields are int32 after an initial 0, so that field `i` is
`data[ends[i]:ends[i + 1]]`. A validity bitmap has bit `i % 8` of byte `i // 8` set if field `i` is not null.
"""

from typing import NamedTuple


class BinaryColumn(NamedTuple):
    """A column of bytes, with `nulls` null fields."""

    validity: bytearray
    ends: bytearray
    data: bytearray
    nulls: int


class RecordColumns(NamedTuple):
    """The fields of records, column by column, in the order in which the records were added."""

    rows: int
    offsets: bytearray
    """int64"""
    timestamps: bytearray
    """int64, ms since the epoch"""
    keys: BinaryColumn
    values: BinaryColumn
    header_ends: bytearray
    """int32 after an initial 0: record `i` has the headers from `header_ends[i]` to `header_ends[i + 1]`"""
    header_names: BinaryColumn
    """UTF-8, with invalid bytes replaced; never null, and without a bitmap"""
    header_values: BinaryColumn
    append_time_runs: list[tuple[bool, int]]
    """in order, (whether the timestamp is the broker's, number of records); otherwise it is the producer's"""
