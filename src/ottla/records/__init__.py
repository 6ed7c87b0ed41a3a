"""Kafka's record batches v2: header, records, compression, validation, partitioner. Independent of log and network.

A batch remains bytes as long as possible: `validate_produced` checks a client's batch, `patch` sets its offset and
leader epoch, and consumers receive it unchanged. Only clients and the cleaner decode records.

Reading order: batch (header), reader and builder (records), validation (produce), compaction (cleaner), codecs,
kernels (compiled or not), murmur2 (partitioner).
"""

from ottla.common.control_types import ControlType
from ottla.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    Codec,
    EncodedRecords,
    check_crc,
    increment_sequence,
    iter_batches,
    patch,
    read_header,
    set_timestamps,
    write_header,
)
from ottla.records.builder import (
    BatchProducer,
    decode_control_key,
    encode_batch,
    encode_control_batch,
    encode_empty_batch,
    encode_end_transaction_marker,
)
from ottla.records.murmur2 import murmur2, partition_for_key
from ottla.records.reader import Record, decode_batch, decode_keys
from ottla.records.validation import NotOneBatchError, ProduceRules, RecordError, validate_produced

__all__ = [
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "BatchHeader",
    "BatchProducer",
    "Buffer",
    "Codec",
    "ControlType",
    "EncodedRecords",
    "NotOneBatchError",
    "ProduceRules",
    "Record",
    "RecordError",
    "check_crc",
    "decode_batch",
    "decode_control_key",
    "decode_keys",
    "encode_batch",
    "encode_control_batch",
    "encode_empty_batch",
    "encode_end_transaction_marker",
    "increment_sequence",
    "iter_batches",
    "murmur2",
    "partition_for_key",
    "patch",
    "read_header",
    "set_timestamps",
    "validate_produced",
    "write_header",
]
