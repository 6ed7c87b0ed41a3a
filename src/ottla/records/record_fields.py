"""Python classes for the record kernels when they are not compiled; compiled kernels use C structs of the same names.

The structs are in `_record_reader.pxd`, `_decode_columns.pxd` and `_encode_columns.pxd`. As local variables they stay
in registers.
"""


class RecordFields:
    """The positions and sizes of one record's fields; positions count from the start of the buffer.

    A null key or value has a negative size. `begin` is the position of the length, `body` of the byte after it.
    `number` is the last number that was read.
    """

    number: int
    begin: int
    body: int
    after_timestamp: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: int
    key_size: int
    value: int
    value_size: int
    header_count: int
    headers: int


class WalkResult:
    """Statistics of the records before the first malformed one.

    `sound` is their number and `position` their end. `misplaced` counts the records whose offset delta differs from
    their index.
    """

    sound: int
    position: int
    least: int
    greatest: int
    null_keys: int
    misplaced: int


class BatchSpan:
    """Where the uncompressed records of a batch are, and the fields of its header that decode them.

    `append_time` replaces the records' own timestamps if `has_append_time` is set.
    """

    start: int
    end: int
    count: int
    base_offset: int
    base_timestamp: int
    has_append_time: bool
    append_time: int


class OpenBatch:
    """A batch to which `RowEncoder` adds rows: its memory, the used bytes, and fields of its future header."""

    target: bytearray
    used: int
    capacity: int
    base_timestamp: int
    max_timestamp: int
    count: int

    def __init__(self) -> None:
        self.count = 0
