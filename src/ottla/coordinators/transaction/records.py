"""Encodes and decodes the records of `__transaction_state`.

Values have version 1 if the level of the feature `transaction.version` is at least 1, otherwise version 0, which
cannot store the fields of KIP-890: the previous and the next producer id, and the version of the transaction.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.transaction.events import TopicPartition
from ottla.coordinators.transaction.metadata import FLEXIBLE_RECORDS_SINCE, Metadata
from ottla.coordinators.transaction.states import State
from ottla.protocol.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
)
from ottla.protocol.wire import DecodeError

MOST_CACHED_PARTITIONS = 32
LONGEST_CACHED = 256
_STATES = {state.value: state for state in State}


def _key(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


_cached_key = lru_cache(maxsize=10_000)(_key)


def key_of(transactional_id: str) -> bytes:
    """The key of a transactional id. It is cached, because each transaction appends three records with it.

    Keys of long ids are not cached, so that a client cannot fill the memory with them.
    """
    return (_cached_key if len(transactional_id) <= LONGEST_CACHED else _key)(transactional_id)


def record_of(transactional_id: str, metadata: Metadata, level: int) -> RecordBytes:
    """The record of a transactional id; `level` is the level of `transaction.version`."""
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=None if metadata.state is State.EMPTY else _partitions_of(metadata.partitions),
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if level < FLEXIBLE_RECORDS_SINCE:
        return key_of(transactional_id), encode_value(value, 0)
    value.previous_producer_id = metadata.previous_producer_id
    value.next_producer_id = metadata.next_producer_id
    value.client_transaction_version = metadata.client_transaction_version
    return key_of(transactional_id), encode_value(value, 1)


def tombstone_of(transactional_id: str) -> RecordBytes:
    """The record that deletes a transactional id."""
    return key_of(transactional_id), None


def _partitions_of(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    """The partitions by topic, as the record has them. They must not be changed.

    They are cached if there are few: two records of a transaction name them, and often the next transaction's.
    """
    return (_cached_by_topic if len(partitions) <= MOST_CACHED_PARTITIONS else _by_topic)(partitions)


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    return [
        PartitionsSchema(topic=topic, partition_ids=[index for _, index in rows])
        for topic, rows in groupby(sorted(partitions), key=lambda partition: partition[0])
    ]


_cached_by_topic = lru_cache(maxsize=256)(_by_topic)


def metadata_of(value: TransactionLogValue) -> Metadata:
    """The state that a record stores. Raises DecodeError if Kafka could not have written it."""
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise DecodeError(f"Unknown transaction state id {value.transaction_status}")
    topics = value.transaction_partitions or []
    return Metadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset((row.topic, index) for row in topics for index in row.partition_ids),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=value.client_transaction_version,
    )
