"""Reads what runs have published, and what the brokers know about the inputs of a query. Does not import Spark."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.clients import Admin, Consumer, Producer, Record
from ottla.clients.admin import OffsetSpec
from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import ClientError, RequestTimedOut, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.streams.facts import Facts, KeySample, OpenTransaction
from ottla.streams.skew import find_skew
from ottla.streams.status import TOPIC, Status
from ottla.tools.admin.topic_facts import copied_topics

logger = logging.getLogger("ottla.streams")

READ_S: Final = 30.0
ENDS_S: Final = 10.0
"""How long to wait for the ends of inputs; a partition without a leader has none."""
SAMPLE_RECORDS: Final = 1_000
SAMPLE_BYTES: Final = 4 << 20
SAMPLE_S: Final = 5.0
"""The limits of a read of keys: offsets, bytes of keys and values, and time."""


def read_statuses(client: Mapping[str, object]) -> list[Status]:
    """Return the latest status of each query, sorted by pipeline and query. Raises exceptions of clients."""
    latest: dict[bytes, bytes | None] = {}
    settings: dict[str, Any] = {**client, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    with Consumer(settings) as consumer:
        partitions = [TopicPartition(TOPIC, each) for each in consumer.topics().get(TOPIC, ())]
        ends = consumer.end_offsets(partitions) if partitions else {}
        waiting = {partition for partition, end in ends.items() if end > 0}
        consumer.assign(waiting)
        deadline_s = time.monotonic() + READ_S
        while waiting:
            if time.monotonic() >= deadline_s:
                raise RequestTimedOut(f"{TOPIC} was not read to its end in {READ_S:g} s")
            for record in consumer.poll(0.5):
                latest[record.key or b""] = record.value
            waiting = {each for each in waiting if consumer.position(each) < ends[each]}
    found = [status for value in latest.values() if value is not None and (status := _status(value)) is not None]
    return sorted(found, key=lambda each: each.key)


def _status(value: bytes) -> Status | None:
    try:
        return Status.loads(value)
    except ValueError as error:
        logger.warning("Record in %s skipped: %s", TOPIC, error)
        return None


def forget(client: Mapping[str, object], statuses: Iterable[Status]) -> None:
    """Delete the statuses of queries. Raises exceptions of clients."""
    with Producer(client) as producer:
        for delivery in [producer.send(TOPIC, None, key=each.key.encode()) for each in statuses]:
            delivery.result(READ_S)


def gather_facts(admin: Admin, status: Status, now_ms: int) -> Facts:
    """Ask the brokers about the inputs of a query. Raises exceptions of clients."""
    topics = sorted(set(status.run.streams.values()))
    partitions, missing = _partitions(admin, topics)
    ends = _ends(admin, partitions)
    if not status.run.exactly_once or not partitions:
        return Facts(now_ms, ends, (), missing)
    stable = _ends(admin, partitions, read_committed=True)
    held = [each for each in partitions if stable[each] < ends[each]]
    return Facts(now_ms, stable, _transactions(admin, held, ends), missing)


def with_present_ends(admin: Admin, statuses: Sequence[Status]) -> list[Status]:
    """Return the statuses with the present ends of their inputs. Raises exceptions of clients.

    A run publishes the ends that it saw before its last micro-batch: while it runs a long one, or has ended, records
    arrive that it does not know.
    """
    partitions, _ = _partitions(admin, sorted({given.topic for each in statuses for given in each.inputs}))
    ends = {
        is_stable: _ends(admin, partitions, read_committed=is_stable)
        for is_stable in {each.run.exactly_once for each in statuses}
    }
    return [_at(each, ends[each.run.exactly_once]) for each in statuses]


def _at(status: Status, ends: Mapping[TopicPartition, int]) -> Status:
    inputs = []
    for given in status.inputs:
        partitions = [
            replace(each, end=ends.get(TopicPartition(given.topic, each.partition), each.end))
            for each in given.partitions
        ]
        # The offsets of omitted partitions are not known: only records that have arrived in the others are added.
        lag = given.lag + sum(each.lag for each in partitions) - sum(each.lag for each in given.partitions)
        inputs.append(replace(given, partitions=partitions, lag=lag))
    return replace(status, inputs=inputs)


def _ends(
    admin: Admin, partitions: Sequence[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
    if not latest:
        return {}
    found = admin.list_offsets(latest, read_committed=read_committed, timeout_s=ENDS_S)
    return {each: at.offset for each, at in found.items()}


def with_keys(client: Mapping[str, object], status: Status, facts: Facts) -> Facts:
    """Add the most frequent key of the newest records of a skewed partition, if a query has one and it is readable."""
    skew = find_skew(status, facts)
    if skew is None or skew.partition not in facts.ends:
        return facts
    try:
        return replace(facts, keys=_sample_partition(client, skew.partition, facts.ends[skew.partition]))
    except ClientError as error:
        logger.warning("Keys not read: %s", error)
        return facts


def _sample_partition(client: Mapping[str, object], partition: TopicPartition, end: int) -> KeySample | None:
    """Return the most frequent key of a partition. Raises exceptions of clients."""
    counts = Counter(record.key for record in _newest(client, partition, end))
    if not counts:
        return None
    key, count = counts.most_common(1)[0]
    return KeySample(partition, counts.total(), key, count)


def _newest(client: Mapping[str, object], partition: TopicPartition, end: int) -> Iterator[Record[bytes, bytes]]:
    """Yield the newest records of a partition: at most 1,000 offsets, 4 MiB, and 5 s."""
    size, deadline_s = 0, time.monotonic() + SAMPLE_S
    settings: dict[str, Any] = {**client, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    with Consumer(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, max(0, end - SAMPLE_RECORDS))
        while consumer.position(partition) < end and size < SAMPLE_BYTES and time.monotonic() < deadline_s:
            for record in consumer.poll(0.5):
                if record.offset < end:
                    size += len(record.key or b"") + len(record.value or b"")
                    yield record


def _partitions(admin: Admin, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
    missing: list[str] = []
    if not topics:
        return [], missing
    try:
        described: Mapping[str, Any] = admin.describe_topics(topics)
    except PartialFailure as failure:
        if not all(isinstance(error, UnknownTopicOrPartition) for error in failure.errors.values()):
            raise
        described, missing = failure.results, sorted(map(str, failure.errors))
    found = [TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions]
    return found, missing


def _transactions(
    admin: Admin, partitions: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
) -> tuple[OpenTransaction, ...]:
    """Return the open transactions in partitions, those with the smallest start first."""
    if not partitions:
        return ()
    found = [
        (partition, each, each.transaction_start_offset)
        for partition, producers in admin.describe_producers(partitions).items()
        for each in producers
        if each.transaction_start_offset is not None
    ]
    listed = admin.list_transactions(producer_ids={each.producer_id for _, each, _ in found}) if found else []
    ids = {each.producer_id: each.transactional_id for each in listed}
    # In a mirror's copy, the producer belongs to another cluster, and may have the id of a producer of this one.
    copies = copied_topics(admin, {partition.topic for partition, _, _ in found})
    transactions = [
        OpenTransaction(
            partition,
            start,
            each.producer_id,
            None if partition.topic in copies else ids.get(each.producer_id),
            each.last_timestamp_ms,
            ends[partition] - start,
            copies.get(partition.topic),
        )
        for partition, each, start in found
    ]
    return tuple(sorted(transactions, key=lambda each: (each.partition, each.start_offset)))
