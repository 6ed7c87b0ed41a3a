"""The stream of the binary log. Each `read` returns within about half a second, by the server's heartbeats."""

from __future__ import annotations

import select
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.mysql.positions import LogPosition
from ottla.connect.connectors.mysql.session import errors, settings
from ottla.connect.errors import ConnectError

HEARTBEAT_S: Final = 0.5
_CONNECTIONS: Final = 2
_CUT: Final = "truncated in the middle of event"
EVENTS: Final = (
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
    DeleteRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)


class CutLogError(ConnectError):
    """A log ends within an event: the server has crashed while it wrote a transaction, which it rolled back."""


class Binlog:
    """A connection that reads the log from a position."""

    def __init__(self, options: Options, position: LogPosition) -> None:
        self._options, self._opened = options, 0
        self._reader = BinLogStreamReader(
            connection_settings=settings(options),
            server_id=options.number("database.server.id"),
            blocking=True,
            resume_stream=True,
            log_file=position.file,
            log_pos=position.pos,
            only_events=EVENTS,
            slave_heartbeat=HEARTBEAT_S,
            enable_logging=False,
            pymysql_wrapper=self._connect,
        )

    def _connect(self, **given: Any) -> Any:
        """Open the stream and its control connection, once: a lost stream must begin at a committed offset again."""
        self._opened += 1
        if self._opened > _CONNECTIONS:
            raise ConnectionResetError("the stream was disconnected")
        if "db" in given:  # PyMySQL warns of this name
            given["database"] = given.pop("db")
        return pymysql.connect(**given)

    def read(self) -> Any:
        """Return the next event. Raises RetriableError if the connection is lost, and CutLogError."""
        with errors(self._options, "read the binary log"):
            try:
                event = self._reader.fetchone()
            except pymysql.OperationalError as error:
                if _CUT in str(error):
                    raise CutLogError(f"The binary log ends within an event: {error}") from error
                raise
            if event is None:
                raise ConnectionResetError("the server has ended the stream")
            return event

    @property
    def has_more(self) -> bool:
        """Whether bytes have arrived; more may be in the buffer of the driver."""
        poll = select.poll()  # select() refuses numbers of sockets from 1024 on
        poll.register(self._reader._stream_connection._sock, select.POLLIN)  # noqa: SLF001 - not public
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close both connections."""
        try:
            self._reader.close()
        except pymysql.Error as error:
            if "Already closed" not in str(error):
                raise
