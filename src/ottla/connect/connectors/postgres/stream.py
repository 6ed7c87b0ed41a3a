"""From messages of pgoutput to records, with exact offsets.

A transaction is emitted in the order of its messages; a batch may end within it. The offset of a record names the
last complete transaction, and how many messages of the current one are emitted: after a restart the server sends the
transaction again from its beginning, and that many messages are counted, but not emitted. Records of one message stay
in one batch, and only the last of them has the message in its offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connectors.postgres import notices
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    Relation,
    Truncate,
    Update,
    decode,
)
from ottla.connect.connectors.postgres.positions import StreamPosition
from ottla.connect.connectors.postgres.relations import Relations
from ottla.connect.connectors.postgres.rows import Row
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.types import StaleEnumError
from ottla.connect.connectors.postgres.visibility import Borders
from ottla.connect.errors import DataError
from ottla.connect.records import SourceRecord

logger = logging.getLogger(__name__)
OPERATIONS: Final = {Insert: "c", Update: "u", Delete: "d"}
Watch = Callable[[TableEvents, Insert | Update | Delete, int, int], None]


@dataclass
class Transaction:
    """The transaction whose messages arrive."""

    begin: Begin | None = None
    messages: int = 0
    """The messages that have arrived."""
    resume: int = 0
    """The messages that were emitted before a restart."""
    hidden: frozenset[str] = frozenset()
    """The tables whose snapshots have seen the transaction."""
    old: bool = False
    """Whether all of it was emitted before a restart."""


class Stream:
    """Turns messages into records. The caller feeds messages in order, and takes `records`."""

    def __init__(self, options: Options, maker: EventMaker, catalog: Catalog, position: StreamPosition) -> None:
        self.records: list[SourceRecord] = []
        self.complete = 0
        """The number of records up to the end of the last complete transaction."""
        self.position = position
        self.borders = Borders(position.borders)
        self.signals: list[Row] = []
        """Rows that were inserted into the signal table, in order."""
        self.watch: Watch | None = None
        """Called for each change of a captured table (incremental snapshots)."""
        self._maker, self._relations = maker, Relations(maker, catalog)
        self._skipped, self._mode = options.skipped, options.text("event.processing.failure.handling.mode")
        self._counter = notices.TransactionCounter(maker) if options.flag("provide.transaction.metadata") else None
        self._context = Context(last_commit=position.last_commit)
        self._now = Transaction()

    @property
    def in_transaction(self) -> bool:
        """Whether the current transaction is not complete."""
        return self._now.begin is not None

    @property
    def context(self) -> Context:
        """The context of the next event."""
        return self._context

    def feed(self, lsn: int, data: bytes) -> None:
        """Take a message."""
        message = decode(data)
        context = self._context
        context.lsn = lsn
        kind = type(message)
        if kind in OPERATIONS:
            self._change(message)  # type: ignore[arg-type] # by its class
        elif isinstance(message, Begin):
            self._start(message)
        elif isinstance(message, Commit):
            self._finish(message)
        elif isinstance(message, Relation):
            self._relations.define(message)
        elif isinstance(message, Truncate):
            self._truncate(message)
        elif isinstance(message, Message):
            self._message(message)
        elif isinstance(message, Origin):
            context.origin, context.origin_lsn = message.name, message.lsn

    def _start(self, begin: Begin) -> None:
        context, position = self._context, self.position
        now = self._now = Transaction(begin)
        context.xid, context.commit_us = begin.xid, begin.commit_us
        context.origin = context.origin_lsn = None
        now.old = begin.final_lsn < position.done
        now.resume = position.partial_messages if begin.final_lsn == position.partial_lsn else 0
        now.hidden = self.borders.seen(begin.xid, begin.final_lsn) if self.borders else frozenset()

    def _finish(self, commit: Commit) -> None:
        context = self._context
        context.lsn = commit.end_lsn
        self._now.begin = None
        if self._counter is not None:
            if self._counter.total and not self._now.old:
                record = self._counter.end(context)
                self.records.append(record)
            self._counter.forget()
        self.complete = len(self.records)
        context.xid, context.block = None, None
        if self._now.old:
            return
        context.last_commit = commit.end_lsn
        self.advance(commit.end_lsn)
        if self.records:
            self.records[-1].source_offset = self.offset()

    def begin_batch(self, records: list[SourceRecord]) -> None:
        """Add the next records to this list, which has complete records of incremental snapshots."""
        self.records, self.complete = records, len(records)

    def advance(self, lsn: int) -> None:
        """Everything up to a position between transactions is done."""
        position = self.position
        if lsn > position.done:
            position.done, position.partial_lsn, position.partial_messages = lsn, 0, 0
            if self.borders and self.borders.passed(lsn):
                position.borders = self.borders.stored()

    def offset(self) -> dict[str, Any]:
        """Return the offset of the current position."""
        context, position = self._context, self.position
        done = position.done
        offset: dict[str, Any] = {
            "lsn": context.lsn,
            "lsn_proc": done,
            "lsn_commit": done,
            "ts_usec": context.commit_us,
        }
        if self._now.begin is not None:
            offset["txId"] = context.xid
            offset["txn_lsn"], offset["txn_messages"] = self._now.begin.final_lsn, self._now.messages
        elif position.partial_lsn:
            offset["txn_lsn"], offset["txn_messages"] = position.partial_lsn, position.partial_messages
        if position.borders:
            offset["borders"] = position.borders
        if position.incremental:
            offset["incremental"] = position.incremental
        return offset

    def _change(self, message: Insert | Update | Delete) -> None:
        before = self._now.messages
        self._now.messages = before + 1
        events = self._relations.events(message.oid)
        if events is None:
            return
        if events.table.full_name == self._maker.filters.signals:
            self._signal(events, message)
            return
        if self._now.old or OPERATIONS[type(message)] in self._skipped:
            return
        name = events.table.full_name
        if name in self._now.hidden:
            return
        emit = before >= self._now.resume
        if self._counter is not None:
            self._count(name, emit=emit)
            if not emit:
                self._converted(events, message)  # counts the second event of an update of the key
        if not emit:
            return
        if self.watch is not None and self._now.begin is not None:
            self.watch(events, message, self._now.begin.xid, self._now.begin.final_lsn)
        self._append(self._converted(events, message), before)

    def _converted(self, events: TableEvents, message: Insert | Update | Delete) -> list[SourceRecord]:
        context = self._context
        context.offset = {}
        try:
            try:
                return _records(events, message, context)
            except StaleEnumError:
                return _records(self._relations.refreshed(message.oid), message, context)
        except (DataError, StaleEnumError) as error:
            where = f"change at {context.lsn:X} of transaction {context.xid}"
            if self._mode == "fail":
                raise DataError(f"{error} ({where})") from error
            logger.log(logging.WARNING if self._mode == "warn" else logging.DEBUG, "Skipped a %s: %s", where, error)
            return []

    def _count(self, name: str, *, emit: bool) -> None:
        assert self._counter is not None
        context = self._context
        if self._counter.total == 0 and emit:
            context.offset = self._offset_at(0)
            self.records.append(self._counter.begin(context))
        counter = self._counter
        context.block = counter.block(context, name)
        context.next_block = lambda: counter.block(context, name)

    def _offset_at(self, messages: int) -> dict[str, Any]:
        current, self._now.messages = self._now.messages, messages
        offset = self.offset()
        self._now.messages = current
        return offset

    def _append(self, records: list[SourceRecord], before: int) -> None:
        if not records:
            return
        if len(records) > 1:
            earlier = self._offset_at(before)
            for each in records:
                each.source_offset = earlier
        records[-1].source_offset = self.offset()
        self.records += records

    def _truncate(self, message: Truncate) -> None:
        before = self._now.messages
        self._now.messages = before + 1
        if self._now.old or "t" in self._skipped:
            return
        records: list[SourceRecord] = []
        emit = before >= self._now.resume
        for oid in message.oids:
            events = self._relations.events(oid)
            if events is None or events.table.full_name in self._now.hidden:
                continue
            if self._counter is not None:
                self._count(events.table.full_name, emit=emit)
            if emit:
                records += events.truncate(self._context)
        self._append(records, before)

    def _message(self, message: Message) -> None:
        context = self._context
        if not self._maker.filters.has_message(message.prefix) or self._maker.flatten:
            self._now.messages += message.transactional
            return
        if message.transactional:
            before = self._now.messages
            self._now.messages = before + 1
            if self._now.old:
                return
            emit = before >= self._now.resume
            if self._counter is not None:
                self._count("message", emit=emit)
            if emit:
                self._append([notices.message(self._maker, context, message)], before)
        elif message.lsn >= self.position.done:
            self._loose_message(message)

    def _loose_message(self, message: Message) -> None:
        context = self._context
        context.xid, context.block, context.commit_us = None, None, time.time_ns() // 1000
        context.last_commit = message.lsn
        record = notices.message(self._maker, context, message)
        self.advance(message.lsn + 1)
        record.source_offset = self.offset()
        self.records.append(record)

    def _signal(self, events: TableEvents, message: Insert | Update | Delete) -> None:
        if isinstance(message, Insert) and not self._now.old and self._now.messages > self._now.resume:
            self.signals.append(events.encoder.slow(message.new))


def _records(events: TableEvents, message: Insert | Update | Delete, context: Context) -> list[SourceRecord]:
    if isinstance(message, Insert):
        return events.insert(message, context)
    if isinstance(message, Update):
        return events.update(message, context)
    return events.delete(message, context)
