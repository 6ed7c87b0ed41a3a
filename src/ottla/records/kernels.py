"""Exports the record kernels, compiled or as Python. `ottla.common.kernels` makes the choice.

The kernels for columns, which only clients use, are in `column_kernels`.
"""

from ottla.records._record_reader import (
    COMPILED,
    decode_keys,
    decode_records,
    plain_batch,
    walk_records,
)
from ottla.records._record_writer import append_record, encode_records, keep_records, murmur2

__all__ = [
    "COMPILED",
    "append_record",
    "decode_keys",
    "decode_records",
    "encode_records",
    "keep_records",
    "murmur2",
    "plain_batch",
    "walk_records",
]
