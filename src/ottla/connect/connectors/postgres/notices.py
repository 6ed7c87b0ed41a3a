"""Records that do not belong to a table: transactions' BEGIN and END, and logical decoding messages."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Final

from ottla.connect import data
from ottla.connect.connectors.capture.envelopes import BLOCK
from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.events import SOURCE, EventMaker
from ottla.connect.connectors.postgres.pgoutput import Message
from ottla.connect.connectors.postgres.rows import Row
from ottla.connect.data import Field, Schema, Type, struct
from ottla.connect.records import SourceRecord

TRANSACTION_KEY: Final = replace(
    struct({"id": data.STRING}, "io.debezium.connector.common.TransactionMetadataKey"), version=1
)
_COUNT: Final = replace(
    struct({"data_collection": data.STRING, "event_count": data.INT64}, "event.collection", optional=True), version=1
)
TRANSACTION: Final = replace(
    struct(
        {
            "status": data.STRING,
            "id": data.STRING,
            "event_count": data.OPTIONAL_INT64,
            "data_collections": data.array(_COUNT, optional=True),
            "ts_ms": data.INT64,
        },
        "io.debezium.connector.common.TransactionMetadataValue",
    ),
    version=1,
)
MESSAGE_KEY: Final = replace(
    struct({"prefix": data.OPTIONAL_STRING}, "io.debezium.connector.postgresql.MessageKey"), version=1
)
_MESSAGE: Final = replace(
    struct(
        {"prefix": data.OPTIONAL_STRING, "content": data.OPTIONAL_BYTES}, "io.debezium.connector.postgresql.Message"
    ),
    version=1,
)
MESSAGE: Final = Schema(
    Type.STRUCT,
    name="io.debezium.connector.postgresql.MessageValue",
    version=1,
    fields=(
        Field("op", data.STRING),
        Field("ts_ms", data.OPTIONAL_INT64),
        Field("source", SOURCE),
        Field("transaction", BLOCK),
        Field("message", _MESSAGE),
    ),
)


def _record(
    maker: EventMaker, context: Context, topic: str, key: tuple[Schema, Row], value: tuple[Schema, Row]
) -> SourceRecord:
    return SourceRecord(topic, None, *key, *value, None, [], maker.partition, context.offset)


def message(maker: EventMaker, context: Context, given: Message) -> SourceRecord:
    """Return the event of a logical decoding message."""
    value = {
        "op": "m",
        "ts_ms": time.time_ns() // 1_000_000,
        "source": maker.source("", "", context),
        "transaction": context.block,
        "message": {"prefix": given.prefix, "content": given.content},
    }
    return _record(maker, context, maker.names.messages, (MESSAGE_KEY, {"prefix": given.prefix}), (MESSAGE, value))


class TransactionCounter:
    """Numbers the events of a transaction, and makes its BEGIN and END."""

    def __init__(self, maker: EventMaker) -> None:
        self._maker = maker
        self.total = 0
        self._by_table: Counter[str] = Counter()

    def block(self, context: Context, collection: str) -> Row:
        """Count an event, and return its transaction block. Debezium's id has the position of the event."""
        self.total += 1
        self._by_table[collection] += 1
        return {
            "id": f"{context.xid}:{context.lsn}",
            "total_order": self.total,
            "data_collection_order": self._by_table[collection],
        }

    def begin(self, context: Context) -> SourceRecord:
        """Return the BEGIN."""
        return self._boundary(context, "BEGIN", None, None)

    def end(self, context: Context) -> SourceRecord:
        """Return the END, and forget the transaction."""
        counts = [{"data_collection": name, "event_count": count} for name, count in self._by_table.items()]
        record = self._boundary(context, "END", self.total, counts)
        self.forget()
        return record

    def forget(self) -> None:
        """Begin to count again."""
        self.total = 0
        self._by_table.clear()

    def _boundary(self, context: Context, status: str, count: int | None, counts: list[Row] | None) -> SourceRecord:
        number = f"{context.xid}:{context.lsn}"
        value = {
            "status": status,
            "id": number,
            "event_count": count,
            "data_collections": counts,
            "ts_ms": context.commit_us // 1000,
        }
        topic = self._maker.names.transactions
        return _record(self._maker, context, topic, (TRANSACTION_KEY, {"id": number}), (TRANSACTION, value))
