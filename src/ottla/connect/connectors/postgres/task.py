"""The task: decides between reading tables and streaming, and moves the slot after the worker's commits.

Order after each batch: the worker makes records and offsets durable in Kafka, then `commit` confirms the position at
the slot. So the slot is never ahead of the committed offset, and a slot that is ahead has lost changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import Config, SourceOffset, SourceTask, SourceTaskContext
from ottla.connect.config.definition import SettingError
from ottla.connect.connectors.capture.envelopes import heartbeat
from ottla.connect.connectors.postgres.catalog import Catalog, Table
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.incremental import Incremental, IncrementalReader
from ottla.connect.connectors.postgres.pgoutput import lsn_text
from ottla.connect.connectors.postgres.positions import StreamPosition, first_attempt, snapshot_is_running
from ottla.connect.connectors.postgres.reading import Earlier, Reading
from ottla.connect.connectors.postgres.replication import Replication, lost_advice
from ottla.connect.connectors.postgres.session import connect, errors
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.signals import request_of
from ottla.connect.connectors.postgres.slots import Slot, Slots
from ottla.connect.connectors.postgres.stream import Stream
from ottla.connect.connectors.postgres.tables import captured, readable
from ottla.connect.connectors.postgres.visibility import Borders, Visible
from ottla.connect.errors import ConnectError
from ottla.connect.records import Position, SourceRecord

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)
FACTS_EVERY_S: Final = 5.0
ASK_EVERY_S: Final = 5.0


@dataclass
class _Last:
    """When the regular work was done last, in seconds of the monotonic clock."""

    facts: float = 0.0
    heartbeat: float = 0.0
    advance: float = 0.0
    """When a record had the current position as its offset."""
    position: int = 0
    """The position in the last offset."""


class PostgresTask(SourceTask):
    """Captures the changes of one database."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None
        self._replication: Replication | None = None
        self._reading: Reading | None = None
        self._stream: Stream | None = None
        self._chunks: IncrementalReader | None = None
        self._last = _Last()

    def start(self, context: SourceTaskContext, config: Config) -> None:
        self._context = context
        try:
            self._options = options = Options.of(config)
        except SettingError as error:
            raise ConnectError(str(error)) from error
        self._maker = EventMaker(options, context.converters)
        self._connection = connect(options)
        self._catalog = Catalog(self._connection, options)
        self._slots = Slots(self._connection, options)
        tables = self._catalog.tables()
        self._tables = captured(tables, self._maker.filters, options)
        self._slots.set_replica_identities(self._tables)
        if options.snapshot_mode != "initial_only":
            self._slots.ensure_publication([*self._tables, *self._signal_tables(tables)])
        self._begin(context.offset(self._maker.partition))

    def _signal_tables(self, tables: Sequence[Table]) -> list[Table]:
        return [each for each in tables if each.full_name == self._maker.filters.signals]

    def _begin(self, offset: Position | None) -> None:
        options, mode = self._options, self._options.snapshot_mode
        slot = self._slots.usable()
        if offset is not None and not snapshot_is_running(offset) and mode != "always":
            if slot is not None and not slot.lost:
                self._go_on(StreamPosition.of(offset), slot)
                return
            if mode != "when_needed":
                if mode == "initial_only":
                    self._reading = None
                    return
                raise ConnectError(_slot_is_missing(options, slot))
            logger.warning("Slot %s is lost: reading the tables again", options.slot)
            offset = None
        if slot is not None and slot.lost:
            self._slots.drop()
            slot = None
        if mode == "initial_only":
            self._read(0, None)
            return
        created = slot is None
        slot = slot or self._slots.create()
        if mode == "no_data":
            self._go_on(StreamPosition(slot.confirmed), slot)
            return
        going_on = offset if not created and offset and snapshot_is_running(offset) else None
        self._read(slot.confirmed, going_on, None if created else first_attempt(going_on))

    def _read(self, lsn: int, offset: Position | None, first: Visible | None = None) -> None:
        """Read the tables; `offset`: of a snapshot that was interrupted, and whose slot is still there."""
        borders = str((offset or {}).get("borders") or "")
        done = Borders(borders).tables
        filters = self._maker.filters
        wanted = [
            each
            for each in readable(self._tables, self._options)
            if filters.reads(each.schema, each.name) and each.full_name not in done
        ]
        if wanted:
            delay = self._options.number("snapshot.delay.ms") / 1000
            deadline = time.monotonic() + delay
            while time.monotonic() < deadline and not self._context.is_stopping():
                time.sleep(min(0.2, delay))
            events = [self._events(each) for each in wanted]
            logger.info("Reading %d tables, %d were read before", len(wanted), len(done))
            self._reading = Reading(self._options, events, lsn, earlier=Earlier(borders, first))
        else:
            self._stream_from(StreamPosition(lsn, borders=borders))

    def _events(self, table: Table) -> TableEvents:
        return self._maker.table(table, self._catalog.types([each.type_oid for each in table.columns]))

    def _go_on(self, position: StreamPosition, slot: Slot) -> None:
        done = self._slots.check_position(slot, position.done)
        if done != position.done:
            position = StreamPosition(done)
        self._stream_from(position)

    def _stream_from(self, position: StreamPosition) -> None:
        if self._options.snapshot_mode == "initial_only":
            return
        assert self._connection is not None
        self._stream = Stream(self._options, self._maker, self._catalog, position)
        state = Incremental.of(position.incremental)
        self._chunks = IncrementalReader(self._connection, self._options, self._maker, self._catalog, state)
        self._stream.watch = self._chunks.changed
        self._replication = Replication(self._options, position.done)
        self._last.position = position.done
        self._last.advance = self._last.heartbeat = time.monotonic()
        logger.info("Streaming slot %s from %s", self._options.slot, lsn_text(position.done))

    def poll(self) -> Sequence[SourceRecord]:
        self._report()
        if self._reading is not None:
            return self._poll_tables(self._reading)
        if self._stream is None or self._replication is None:  # initial_only, finished
            time.sleep(self._options.number("poll.interval.ms") / 1000)
            return []
        return self._poll_stream(self._stream, self._replication)

    def _poll_tables(self, reading: Reading) -> list[SourceRecord]:
        records = reading.poll()
        if self._context.transaction_context is not None:
            self._context.transaction_context.commit_transaction()
        if reading.finished:
            self._reading = None
            logger.info("Read %d rows", reading.rows)
            if self._stream is None:
                self._stream_from(StreamPosition(reading.lsn, borders=reading.borders()))
            else:  # a blocking snapshot
                self._stream.borders.add(reading.visible, [each.table.full_name for each in reading.tables])
                self._stream.position.borders = self._stream.borders.stored()
        if self._stream is not None:
            for each in records:
                each.source_offset = self._stream.offset()
        return records

    def _poll_stream(self, stream: Stream, replication: Replication) -> list[SourceRecord]:
        most = self._options.number("max.batch.size")
        chunks = self._chunks
        assert chunks is not None
        records = self._chunk_rows(stream, chunks)
        stream.begin_batch(records)
        was_within = stream.in_transaction
        wait_s = 0.0 if records or chunks.active else self._options.number("poll.interval.ms") / 1000
        if chunks.active:
            wait_s = 0.02
        for lsn, data in replication.read(wait_s):
            stream.feed(lsn, data)
            if len(records) >= most or stream.signals:
                break
            if was_within and not records and not stream.in_transaction:
                break  # a transaction has ended with the records of the previous batch
        if stream.signals and not stream.in_transaction:
            self._obey(stream, chunks)
        if not stream.in_transaction:
            stream.advance(max(stream.position.done, replication.server_end if not records else 0))
            replication.ask(ASK_EVERY_S if not chunks.active else 0.05)
        self._end_transaction(stream)
        return self._with_position(stream, records)

    def _end_transaction(self, stream: Stream) -> None:
        """Have Kafka's transactions end where transactions of the database end (transaction.boundary=connector)."""
        context = self._context.transaction_context
        if context is None:
            return
        if not stream.in_transaction:
            context.commit_transaction()
        elif stream.complete:
            context.commit_transaction(stream.records[stream.complete - 1])

    def _chunk_rows(self, stream: Stream, chunks: IncrementalReader) -> list[SourceRecord]:
        if stream.in_transaction:
            return []
        records = chunks.step(stream.position.done, stream.context)
        stream.position.incremental = chunks.state.stored()
        for each in records:
            each.source_offset = stream.offset()
        return records

    def _obey(self, stream: Stream, chunks: IncrementalReader) -> None:
        tables = captured(self._catalog.tables(), self._maker.filters, self._options)
        for row in stream.signals:
            request = request_of(row)
            if request is None:
                continue
            chosen = request.chosen(tables)
            conditions = {each.full_name: request.condition(each) for each in chosen}
            if request.kind == "stop":
                chunks.remove(chosen if request.tables else None)
            elif request.kind == "incremental":
                chunks.add([each for each in chosen if each.key], conditions)
                for each in chosen:
                    if not each.key:
                        logger.warning("%s has no key: ask for a snapshot of type blocking", each.full_name)
            elif chosen:
                events = [self._events(each) for each in chosen]
                given = [conditions[each.full_name] for each in chosen]
                self._reading = Reading(self._options, events, stream.position.done, conditions=given, name="BLOCKING")
        stream.signals = []
        stream.position.incremental = chunks.state.stored()

    def _with_position(self, stream: Stream, records: list[SourceRecord]) -> list[SourceRecord]:
        """Add a heartbeat, or a record that has just an offset, so that the slot advances on quiet tables."""
        options, now = self._options, time.monotonic()
        interval = options.number("heartbeat.interval.ms") / 1000
        due = interval and now - self._last.heartbeat >= interval
        quiet = not records and stream.position.done > self._last.position and now - self._last.advance >= ASK_EVERY_S
        if records or due or quiet:
            self._last.position, self._last.advance = stream.position.done, now
        maker, offset = self._maker, stream.offset()
        if due:
            self._last.heartbeat = now
            self._heartbeat_query()
            return [*records, heartbeat(maker.names, options.prefix, maker.partition, offset)]
        if quiet:
            return [SourceRecord("", None, None, None, None, None, None, [], maker.partition, offset)]
        return records

    def _heartbeat_query(self) -> None:
        query = self._options.text("heartbeat.action.query")
        if query and not self._options.flag("read.only"):
            assert self._connection is not None
            with errors(self._options, "run heartbeat.action.query"):
                self._connection.execute(query)

    def commit(self, offsets: Sequence[SourceOffset]) -> None:
        for _, offset in offsets:
            if offset is not None and self._replication is not None and not snapshot_is_running(offset):
                self._replication.confirm(StreamPosition.of(offset).done)

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._last.facts < FACTS_EVERY_S:
            return
        self._last.facts = now
        facts: dict[str, object] = {}
        if self._reading is not None:
            facts.update(self._reading.facts())
        elif self._stream is not None:
            facts.update(snapshot="finished", position=lsn_text(self._stream.position.done))
        if self._chunks is not None:
            facts.update(self._chunks.facts())
        if self._options.snapshot_mode != "initial_only":
            facts.update(self._slot_facts())
        self._context.report(facts)

    def _slot_facts(self) -> dict[str, object]:
        options, slot = self._options, self._slots.find()
        if slot is None:
            return {"slot": f"{options.slot} does not exist"}
        most = options.number("max.slot.lag")
        if slot.lost:
            raise ConnectError(_slot_is_missing(options, slot))
        if most and slot.lag > most:
            raise ConnectError(
                f"Slot {options.slot} retains {slot.lag} bytes of the log, more than max.slot.lag={most}: see which "
                "transaction or topic the task waits for, and raise the limit or drop the slot."
            )
        return {"slot": options.slot, "slot_lag_bytes": slot.lag, "slot_status": slot.status}

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.close()
        if self._replication is not None:
            self._replication.close()
        if self._connection is not None:
            try:
                if self._options.flag("slot.drop.on.stop"):
                    self._drop_slot()
            finally:
                self._connection.close()

    def _drop_slot(self) -> None:
        deadline = time.monotonic() + 5
        while self._slots.find() is not None and time.monotonic() < deadline:
            self._slots.drop()
            time.sleep(0.05)


def _slot_is_missing(options: Options, slot: Slot | None) -> str:
    state = (
        "does not exist any more" if slot is None else "is lost: it held more of the log than max_slot_wal_keep_size"
    )
    return f"Slot {options.slot} {state}. {lost_advice(options)}"
