"""Encodes metadata records into batches: one batch, or a metadata transaction of several (KIP-868)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.common.slices import Slices
from ottla.metadata.features import LATEST_METADATA_VERSION, record_version
from ottla.protocol import metadata_records as m
from ottla.protocol.metadata_records import encode_metadata_record

if TYPE_CHECKING:
    from ottla.protocol.message import Message

MAX_BATCH_BYTES = 4 << 20


def batches_of(records: list[Message], metadata_version: int) -> Slices[list[list[bytes]]]:
    """Encode an operation's records, which take effect together, into batches."""
    level = metadata_version
    if not level:  # the bootstrap records themselves
        levels = (record.feature_level for record in records if isinstance(record, m.FeatureLevelRecord))
        level = next(levels, LATEST_METADATA_VERSION)
    values = []
    for record in records:
        values.append(encode_metadata_record(record, record_version(record, level)))
        yield
    if sum(map(len, values)) <= MAX_BATCH_BYTES:
        return [values]
    # The records exceed one batch: a transaction makes them atomic.
    begin = encode_metadata_record(m.BeginTransactionRecord(name=None), 0)
    end = encode_metadata_record(m.EndTransactionRecord(), 0)
    return [[begin], *_parts(values), [end]]


def _parts(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for value in values:
        if part and size + len(value) > MAX_BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(value)
        size += len(value)
    yield part
