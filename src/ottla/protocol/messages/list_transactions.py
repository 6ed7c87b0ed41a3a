"""ListTransactions (66) lists transactions, filtered by state, producer, duration (KIP-994) and pattern (KIP-1152).

KIP-664.
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    """The filters."""

    state_filters: list[str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: str | None = since(2, default=None)


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    """The transactions known to this coordinator."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []


class TransactionState(Struct):
    """An element of `ListTransactionsResponse.transaction_states`."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    transaction_state: str = ""
