"""`FramedFields`: the keys or values of a batch with the schema ids before them, in Confluent's wire format.

A field begins with a zero byte and four bytes of schema id; the data follow.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.records._framed_fields import find_fields
from ottla.records.batch import Buffer

FRAME_SIZE: Final = 5
NULL: Final = -1
UNFRAMED: Final = -2


class FramedFields(NamedTuple):
    """The keys or the values of one batch. Positions count from the start of `data`, the uncompressed batch."""

    data: Buffer
    places: bytearray
    """Three columns of 64-bit integers: the schema id, the start and the end of each record's field."""
    ids: list[int]
    """Each different schema id; NULL and UNFRAMED stand for fields that are null or do not begin with an id."""
    record_count: int

    def rows_with(self, schema_id: int, rows: range | None = None) -> list[int]:
        """Return the records with this id among `rows`, by default among all."""
        chosen = range(self.record_count) if rows is None else rows
        ids = memoryview(self.places).cast("q")[chosen.start : chosen.stop].tolist()
        return [row for row, each in zip(chosen, ids, strict=True) if each == schema_id]

    def field(self, row: int) -> memoryview:
        """Return the data of a field, without the schema id."""
        numbers = memoryview(self.places).cast("q")
        start, end = numbers[self.record_count + row], numbers[2 * self.record_count + row]
        return memoryview(self.data)[start + FRAME_SIZE : end]


def framed_fields(data: Buffer, start: int, end: int, count: int, *, of_keys: bool) -> FramedFields:
    """Find the keys or the values of the `count` uncompressed records in `data[start:end]`.

    Raises KafkaError for malformed records.
    """
    places, ids = find_fields(data, start, end, count, of_keys)
    return FramedFields(data, places, ids, count)
