"""Administrators' requests: DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.errors import refuse
from ottla.coordinators.transaction.events import DescribeTransaction, ListTransactions
from ottla.coordinators.transaction.metadata import Metadata
from ottla.coordinators.transaction.states import BY_TITLE
from ottla.protocol.messages import describe_transactions, list_transactions


def describe(core: Core, call: Call[DescribeTransaction], question: DescribeTransaction, _now: Moment) -> Effects:
    """Describe a transaction; once it is decided, only with the partitions that have no marker yet."""
    transactional_id = question.transactional_id
    if not transactional_id:
        return [refuse(call, ErrorCode.INVALID_REQUEST)]
    metadata = core.transactions.get(transactional_id)
    if metadata is None:
        return [refuse(call, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)]
    completion = core.completions.get(transactional_id)
    partitions = metadata.partitions if completion is None else completion.unwritten
    row = describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=[index for _, index in rows])
            for topic, rows in groupby(sorted(partitions), key=lambda partition: partition[0])
        ],
    )
    return [Reply(call, row)]


def unknown_states(titles: Iterable[str]) -> list[str]:
    """Return the titles that are not names of states."""
    return [title for title in titles if title not in BY_TITLE]


def list_all(core: Core, call: Call[ListTransactions], question: ListTransactions, now: Moment) -> Effects:
    """List the transactions that match all filters."""
    rows = [
        list_transactions.TransactionState(
            transactional_id=transactional_id,
            producer_id=metadata.producer_id,
            transaction_state=metadata.state.title,
        )
        for transactional_id, metadata in core.transactions.items()
        if _matches(transactional_id, metadata, question, now)
    ]
    return [Reply(call, rows)]


def _matches(transactional_id: str, metadata: Metadata, question: ListTransactions, now: Moment) -> bool:
    """Whether the filters match. As on Kafka, an id without a transaction counts as open since the year 1970."""
    if question.producer_ids and metadata.producer_id not in question.producer_ids:
        return False
    if question.states and metadata.state.title not in question.states:
        return False
    if question.duration_ms >= 0 and now.wall_ms - metadata.start_ms <= question.duration_ms:
        return False
    return question.matches is None or bool(question.matches(transactional_id))
