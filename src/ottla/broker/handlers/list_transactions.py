"""ListTransactions (66), versions 0-2: the transactions of this coordinator. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.errors import KafkaError
from ottla.common.expressions import compile_expression
from ottla.common.slices import Slices
from ottla.coordinators.transaction.admin import unknown_states
from ottla.coordinators.transaction.events import ListTransactions
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import TransactionPorts


def handle(
    broker: TransactionPorts, context: RequestContext, request: ListTransactionsRequest
) -> Slices[ListTransactionsResponse]:
    """List the transactions that match all filters, one shard after the other: those that the client may describe."""
    pattern = request.transactional_id_pattern
    try:
        matches = compile_expression(pattern, "TransactionalIdPattern") if pattern else None
    except KafkaError as invalid:
        return ListTransactionsResponse(error_code=invalid.code)
    question = ListTransactions(
        frozenset(request.state_filters), frozenset(request.producer_id_filters), request.duration_filter, matches
    )
    error, rows = yield from broker.transactions.list_transactions(question)
    if broker.security.authorizer is not None:
        rows = yield from _described(broker, context, rows)
    unknown = unknown_states(request.state_filters)
    return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown, transaction_states=rows)


def _described(
    broker: TransactionPorts, context: RequestContext, rows: list[TransactionState]
) -> Slices[list[TransactionState]]:
    found = []
    for row in rows:
        name = row.transactional_id
        if allowed(broker, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            found.append(row)
        yield
    return found
