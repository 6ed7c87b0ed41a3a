"""EndTxn (26), versions 0-5: commit or abort a transaction. KIP-98, KIP-360, KIP-890 (the next epoch, in version 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasTransactions


def handle(broker: HasTransactions, context: RequestContext, request: EndTxnRequest) -> Completion[EndTxnResponse]:
    """Respond once the decision is committed; the markers follow."""
    if not request.transactional_id:  # which has no coordinator
        return Completion.of(EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))
    return broker.transactions.submit(request.transactional_id, request, api_version=context.api_version)
