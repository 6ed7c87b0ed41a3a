"""Values that the uncompiled kernels of records use where the compiled ones have C structs of the same names.

The structs are in `_record_reader.pxd` and `_encode_columns.pxd`. As locals they stay in registers.
"""


class RecordFields:
    """Where the fields of one record are; positions count from the start of the buffer.

    A null key or value has a negative size. `begin` is the position of the length, `body` of the byte after it.
    `number` is the number that was read last.
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
    """What is known of the records before the first malformed one.

    `sound` is how many there are and `position` where they end. `misplaced` counts the records whose offset delta
    is not their index.
    """

    sound: int
    position: int
    least: int
    greatest: int
    null_keys: int
    misplaced: int


class OpenBatch:
    """A batch that `RowEncoder` adds rows to: its memory, the bytes used, and what its header will say."""

    target: bytearray
    used: int
    capacity: int
    base_timestamp: int
    max_timestamp: int
    count: int

    def __init__(self) -> None:
        self.count = 0
