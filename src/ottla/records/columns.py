"""Records as columns in Arrow's layout, which `column_kernels.Columns` fills and hands out as bare buffers.

Numbers are in the machine's byte order. The ends of binary fields are int32 with a 0 before them, so that field `i` is
`data[ends[i]:ends[i + 1]]`; a validity bitmap has bit `i % 8` of byte `i // 8` set where field `i` is not null.
"""

from typing import NamedTuple


class BinaryColumn(NamedTuple):
    """Fields of bytes, some of them null."""

    validity: bytearray
    ends: bytearray
    data: bytearray
    nulls: int


class RecordColumns(NamedTuple):
    """What records have in common, column by column, in the order in which they were added."""

    rows: int
    offsets: bytearray
    """int64"""
    timestamps: bytearray
    """int64, ms since the epoch"""
    keys: BinaryColumn
    values: BinaryColumn
    header_ends: bytearray
    """int32, a 0 before them: the headers of record `i` are those from `header_ends[i]` to `header_ends[i + 1]`"""
    header_names: BinaryColumn
    """UTF-8, what is none is replaced; never null, and without a bitmap"""
    header_values: BinaryColumn
    append_time_runs: list[tuple[bool, int]]
    """in order, how many records have the broker's time (True) or their producer's (False) as timestamp"""
