"""The task: decides between reading tables and streaming."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from ottla.connect.api import Config, SourceTask, SourceTaskContext
from ottla.connect.config.definition import SettingError
from ottla.connect.connectors.mysql.binlog import Binlog, CutLogError
from ottla.connect.connectors.mysql.events import EventMaker
from ottla.connect.connectors.mysql.positions import FIRST_POSITION, LogPosition, snapshot_is_running
from ottla.connect.connectors.mysql.session import (
    binary_logs,
    connect,
    current_position,
    errors,
    is_mariadb,
    log_is_missing,
)
from ottla.connect.connectors.mysql.settings import options_of, snapshot_mode
from ottla.connect.connectors.mysql.snapshot import Snapshot
from ottla.connect.connectors.mysql.stream import Stream
from ottla.connect.errors import ConnectError
from ottla.connect.records import Position, SourceRecord

logger = logging.getLogger(__name__)
QUIET_S: Final = 5.0
POLL_S: Final = 0.5


class MysqlTask(SourceTask):
    """Captures the changes of one server."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._binlog: Binlog | None = None
        self._stream: Stream | None = None
        self._beat = self._advance = time.monotonic()
        self._last: LogPosition | None = None
        self._is_new_stream = True

    def start(self, context: SourceTaskContext, config: Config) -> None:
        self._context = context
        try:
            self._options = options = options_of(config)
        except SettingError as error:
            raise ConnectError(str(error)) from error
        connection: Any = connect(options)
        try:
            connector = "mariadb" if is_mariadb(connection) else "mysql"
            self._maker = EventMaker(options, connector)
            with errors(options, "read the position of the log"), connection.cursor() as cursor:
                self._begin(context.offset(self._maker.partition), cursor)
        finally:
            connection.close()

    def _begin(self, offset: Position | None, cursor: Any) -> None:
        mode = snapshot_mode(self._options)
        if offset is not None and not snapshot_is_running(offset) and mode != "always":
            position = LogPosition.of(offset)
            if mode == "initial_only":
                return
            lost = log_is_missing(cursor, position)
            if not lost:
                self._stream_from(position)
                return
            if mode != "when_needed":
                raise ConnectError(
                    f"{lost} Set snapshot.mode=when_needed, or reset the offsets, to read the tables again; keep logs "
                    "longer (binlog_expire_logs_seconds)."
                )
            logger.warning("%s Reading the tables again", lost)
        if mode == "no_data":
            self._stream_from(current_position(cursor))
            return
        time.sleep(min(POLL_S, self._options.number("snapshot.delay.ms") / 1000))
        first = None
        if offset is not None and snapshot_is_running(offset) and mode != "initial_only":
            first = LogPosition.of(offset)
            if lost := log_is_missing(cursor, first):
                logger.warning("%s Rows that were deleted since the interrupted snapshot stay in the topics", lost)
                first = None
        self._snapshot = Snapshot(self._maker, first)
        logger.info("Reading the tables; the stream goes on from %s", self._snapshot.position)

    def _stream_from(self, position: LogPosition) -> None:
        self._stream, self._last, self._is_new_stream = Stream(self._maker, position), None, True
        self._binlog = Binlog(self._options, position)
        logger.info("Streaming from %s", position)

    def poll(self) -> Sequence[SourceRecord]:
        most = self._options.number("max.batch.size")
        if self._snapshot is not None:
            records = self._snapshot.poll(most)
            if self._context.transaction_context is not None:
                self._context.transaction_context.commit_transaction()
            self._context.report({"snapshot": "running", "rows read": self._snapshot.rows})
            if self._snapshot.finished:
                position, self._snapshot = self._snapshot.position, None
                self._context.report({"snapshot": "finished"})
                if snapshot_mode(self._options) != "initial_only":
                    self._stream_from(position)
            return records
        if self._stream is None or self._binlog is None:  # initial_only, finished
            time.sleep(POLL_S)
            return []
        return self._poll_stream(self._stream, self._binlog, most)

    def _poll_stream(self, stream: Stream, binlog: Binlog, most: int) -> list[SourceRecord]:
        deadline = time.monotonic() + POLL_S
        was_within = stream.in_transaction
        while stream.ready < most:
            try:
                event = binlog.read()
            except CutLogError as error:
                self._skip_cut_log(stream, error)
                break
            if self._is_new_stream:
                # Asked after the stream was opened: a server that restarts from now on ends the stream.
                stream.closed = frozenset(binary_logs(self._options)[:-1])
                self._is_new_stream = False
            stream.feed(event)
            if time.monotonic() > deadline or (stream.ready and not stream.in_transaction and not binlog.has_more):
                break
            if was_within and not stream.ready and not stream.in_transaction:
                break  # a transaction has ended with the records of the previous batch
        self._context.report({"position": str(stream.position)})
        records = stream.take(most)
        self._end_transaction(stream, records)
        return self._with_position(stream, records)

    def _end_transaction(self, stream: Stream, records: list[SourceRecord]) -> None:
        """Have Kafka's transactions end where transactions of the server end (transaction.boundary=connector)."""
        context = self._context.transaction_context
        if context is None:
            return
        if not stream.ready and not stream.in_transaction:
            context.commit_transaction()
        elif stream.complete:
            context.commit_transaction(records[stream.complete - 1])

    def _skip_cut_log(self, stream: Stream, error: CutLogError) -> None:
        """Go on with the next log. Raises the error if the server still writes the log that is cut."""
        logs = binary_logs(self._options)
        following = logs[logs.index(stream.file) + 1 :] if stream.file in logs else []
        if not following:
            raise error
        position = LogPosition(following[0], FIRST_POSITION)
        stream.go_on(position)
        if self._binlog is not None:
            self._binlog.close()
        self._binlog, self._is_new_stream = Binlog(self._options, position), True

    def _with_position(self, stream: Stream, records: list[SourceRecord]) -> list[SourceRecord]:
        """Add a heartbeat, or a record that has just an offset, so that the offset advances on quiet tables."""
        now, position = time.monotonic(), stream.position
        interval = self._options.number("heartbeat.interval.ms") / 1000
        if records:
            self._last, self._advance = position, now
        if stream.in_transaction or stream.ready:
            return records
        if interval and now - self._beat >= interval:
            self._beat = now
            self._heartbeat_query()
            return [*records, self._maker.heartbeat(stream.current_offset())]
        if not records and position != self._last and now - self._advance >= QUIET_S:
            self._last, self._advance = position, now
            return [self._maker.only_offset(stream.current_offset())]
        return records

    def _heartbeat_query(self) -> None:
        query = self._options.text("heartbeat.action.query")
        if query:
            connection: Any = connect(self._options)
            try:
                with errors(self._options, "run heartbeat.action.query"), connection.cursor() as cursor:
                    cursor.execute(query)
            finally:
                connection.close()

    def stop(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        if self._binlog is not None:
            self._binlog.close()
