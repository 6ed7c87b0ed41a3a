"""Transactions that hang: no coordinator will end them, and they block readers with read_committed (KIP-664).

None hangs in a mirror's copy. Its transactions belong to the source, whose markers are copied, and producer ids of both
clusters are equal by chance. Brokers write no other markers into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.clients import admin as api
from ottla.clients.errors import TransactionalIdNotFound
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.topic_facts import copied_topics


def active_producers(admin: api.Admin, partitions: Iterable[TopicPartition]) -> list[tuple[dict[str, Any], Any]]:
    """Return the active producers of partitions, each as a row and as the client describes it."""
    return [
        (
            {
                **partition._asdict(),
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "coordinator_epoch": each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
                "last_sequence": each.last_sequence if each.last_sequence >= 0 else None,
                "last_timestamp_ms": each.last_timestamp_ms,
                "start_offset": each.transaction_start_offset,
            },
            each,
        )
        for partition, producers in admin.describe_producers(partitions).items()
        for each in producers
    ]


def hanging(admin: api.Admin, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the open transactions whose coordinator will not end them: it does not know the producer or partition.

    Each row gets the transactional id of its producer, None if no coordinator knows it.
    """
    if not rows:
        return []
    producer_ids = {row["producer_id"] for row in rows}
    listed = admin.list_transactions(producer_ids=producer_ids)
    ids = {each.producer_id: each.transactional_id for each in listed}
    described, errors = outcomes(admin.describe_transactions, ids.values())
    if not all(isinstance(error, TransactionalIdNotFound) for error in errors.values()):
        raise api.PartialFailure.of(errors, described)
    awaited = {(each.producer_id, *partition) for each in described.values() for partition in each.partitions}
    rows = [row for row in rows if (row["producer_id"], row["topic"], row["partition"]) not in awaited]
    # The coordinator may have ended a transaction after the first response: hanging transactions are still open now.
    partitions = {TopicPartition(row["topic"], row["partition"]) for row in rows}
    still_open = {_place(row) for row, _ in active_producers(admin, partitions)} if rows else set()
    rows = [row for row in rows if _place(row) in still_open]
    copies = copied_topics(admin, {row["topic"] for row in rows})
    return [{**row, "transactional_id": ids.get(row["producer_id"])} for row in rows if row["topic"] not in copies]


def check_not_copied(admin: api.Admin, topic: str) -> None:
    """Raise Failure if a mirror copies the topic, so that this cluster cannot end its transactions."""
    mirror = copied_topics(admin, [topic]).get(topic)
    if mirror is not None:
        raise Failure(
            f"Topic {topic} is read-only: mirror {mirror} copies it, with its transactions, from another cluster",
            f"Abort the transaction at the source; `ottla mirror promote {mirror} {topic}` aborts it here, "
            "and ends the copy.",
        )


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["producer_id"], row["start_offset"]
