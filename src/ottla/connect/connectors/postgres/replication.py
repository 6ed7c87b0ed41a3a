"""A logical replication stream over psycopg's libpq: START_REPLICATION, keepalives and confirmations.

psycopg has no replication protocol, but its `pq` module has libpq's copy functions, which is all that it needs; TLS and
authentication are libpq's. The SQL functions that peek into a slot would decode the log again from the slot's restart
position on each call: with 300,000 changes since then, 150 ms of the server's CPU time each, and without limit while a
transaction stays open.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.connect.connectors.postgres.pgoutput import EPOCH_US, lsn_text
from ottla.connect.connectors.postgres.session import driver, errors, parameters, place
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_DATA, _KEEPALIVE, _STATUS = Struct("!QQq"), Struct("!QqB"), Struct("!BQQQqB")
_HEADER: Final = 25
_W, _K, _R = ord("w"), ord("k"), ord("r")
_MESSAGES_SINCE: Final = 140_000
SEND_TIMEOUT_S: Final = 10.0
IN_USE_S: Final = 5.0


def quoted(name: str) -> str:
    """Return an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def wait_readable(socket: int, timeout_s: float) -> bool:
    """Wait until a socket can be read."""
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


class Replication:
    """Reads the changes of a slot from a position on. Not thread safe."""

    def __init__(self, options: Options, start: int) -> None:
        self._options = options
        self.server_end = 0
        """The server has sent everything before this position (from its last keepalive)."""
        self._confirmed = start
        self._asked = self._sent = time.monotonic()
        self._interval_s = options.number("status.update.interval.ms") / 1000
        with self._errors():
            self._connection = self._opened()
            try:
                self._start(start)
            except BaseException:
                self._connection.finish()
                raise

    def _errors(self) -> AbstractContextManager[None]:
        return errors(self._options, f"stream slot {self._options.slot}")

    def _opened(self) -> PGconn:
        driver()
        from psycopg import pq  # noqa: PLC0415 - optional
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - optional

        text = make_conninfo(**parameters(self._options, replication=True))
        connection = pq.PGconn.connect(text.encode())
        if connection.status != pq.ConnStatus.OK:
            reason = _text(connection)
            connection.finish()
            raise RetriableError(
                f"PostgreSQL could not open a replication connection at {place(self._options)}: {reason}"
            )
        return connection

    def _start(self, start: int) -> None:
        from psycopg import pq  # noqa: PLC0415 - optional

        options, connection = self._options, self._connection
        given = ["proto_version '1'", "publication_names '" + quoted(options.publication).replace("'", "''") + "'"]
        if connection.server_version >= _MESSAGES_SINCE:
            given.append("messages 'true'")
        command = f"START_REPLICATION SLOT {quoted(options.slot)} LOGICAL {lsn_text(start)} ({', '.join(given)})"
        deadline = time.monotonic() + IN_USE_S
        while True:
            connection.send_query(command.encode())
            result = connection.get_result()
            if result is not None and result.status == pq.ExecStatus.COPY_BOTH:
                connection.nonblocking = 1
                return
            reason = _text(connection) if result is None else result.get_error_message()
            # The server needs a moment to notice that the previous reader has disconnected.
            if " is active for PID " not in reason or time.monotonic() >= deadline:
                raise _failure(options, reason)
            while connection.get_result() is not None:
                pass
            time.sleep(0.05)

    def read(self, timeout_s: float) -> Iterator[tuple[int, bytes]]:
        """Yield positions and messages that have arrived; wait for the first one. Raises RetriableError."""
        with self._errors():
            yield from self._arrived(timeout_s)

    def _arrived(self, timeout_s: float) -> Iterator[tuple[int, bytes]]:
        get, connection = self._connection.get_copy_data, self._connection
        deadline, unpack = time.monotonic() + timeout_s, _DATA.unpack_from
        waits = True
        while True:
            size, data = get(1)
            if size > 0:
                if data[0] == _W:
                    waits = False
                    yield unpack(data, 1)[0], bytes(data[_HEADER:])
                elif data[0] == _K:
                    self._keepalive(bytes(data))
            elif size == 0:
                self._update_status()
                if not wait_readable(connection.socket, deadline - time.monotonic() if waits else 0):
                    return
                connection.consume_input()
            else:
                raise _failure(self._options, self._end_of_copy())

    def _end_of_copy(self) -> str:
        self._connection.nonblocking = 0
        result = self._connection.get_result()
        return _text(self._connection) if result is None else result.get_error_message()

    def _keepalive(self, data: bytes) -> None:
        self.server_end, _, wanted = _KEEPALIVE.unpack_from(data, 1)
        if wanted:
            self._send_status(ask=False)

    def ask(self, every_s: float) -> None:
        """Ask the server where it is, at most once in a time: its keepalive moves `server_end`."""
        if time.monotonic() - self._asked >= every_s:
            self._asked = time.monotonic()
            self._send_status(ask=True)

    def confirm(self, lsn: int) -> None:
        """Tell the server that everything before a position is durable elsewhere; it may free its log."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._send_status(ask=False)

    def _update_status(self) -> None:
        if time.monotonic() - self._sent >= self._interval_s:
            self._send_status(ask=False)

    def _send_status(self, *, ask: bool) -> None:
        at, self._sent = self._confirmed, time.monotonic()
        clock = time.time_ns() // 1000 - EPOCH_US
        deadline = time.monotonic() + SEND_TIMEOUT_S
        with self._errors():
            self._connection.put_copy_data(_STATUS.pack(_R, at, at, at, clock, ask))
            while self._connection.flush() == 1:
                if time.monotonic() >= deadline:
                    raise RetriableError(f"{place(self._options)} reads no status updates since {SEND_TIMEOUT_S:.0f} s")
                time.sleep(0.01)

    def close(self) -> None:
        """Close the connection."""
        self._connection.finish()


def _text(connection: PGconn) -> str:
    return connection.get_error_message().strip()


def _failure(options: Options, reason: str) -> ConnectError:
    reason = reason.strip() or "the server closed the connection"
    text = f"PostgreSQL could not stream slot {options.slot} at {place(options)}: {reason}"
    if "no longer" in reason or "invalidated" in reason or "exceeded the maximum reserved size" in reason:
        return ConnectError(f"{text}. {lost_advice(options)}")
    if "does not exist" in reason and "publication" in reason:
        return ConnectError(text)
    return RetriableError(text)


def lost_advice(options: Options) -> str:
    """Say what can be done after changes were lost."""
    return (
        f"Changes were lost: drop the slot with SELECT pg_drop_replication_slot('{options.slot}'), and delete the "
        "connector's offsets, or set snapshot.mode=when_needed, so that the tables are read again."
    )
