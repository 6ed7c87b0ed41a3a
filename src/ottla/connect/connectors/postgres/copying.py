"""Rows of a query through COPY TO STDOUT, in blocks of text: the cheapest way out of PostgreSQL and into Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.connect.connectors.postgres.replication import wait_readable
from ottla.connect.connectors.postgres.session import driver, translated
from ottla.connect.errors import RetriableError

if TYPE_CHECKING:
    import psycopg

BLOCK_ROWS: Final = 2048
BLOCK_BYTES: Final = 4 << 20
SILENCE_S: Final = 1.0
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unescaped(field: str) -> str | None:
    """Return the text of a field that has a backslash; None for \\N."""
    if field == "\\N":
        return None
    return _ESCAPE.sub(lambda found: _LETTERS.get(found[1], found[1]), field)


def rows_of(block: bytes) -> list[list[str | None]]:
    """Split a block of complete lines into rows of fields."""
    lines = str(block, "utf-8").split("\n")
    lines.pop()  # after the last line end
    if b"\\" not in block:
        return cast("list[list[str | None]]", [line.split("\t") for line in lines])
    rows: list[list[str | None]] = []
    for line in lines:
        fields = cast("list[str | None]", line.split("\t"))
        if "\\" in line:
            fields = [unescaped(each) if each is not None and "\\" in each else each for each in fields]
        rows.append(fields)
    return rows


def copy_blocks(
    connection: psycopg.Connection[Any], query: str, stopped: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Yield blocks of complete lines of a query's rows. Ends early, with the connection unusable, when stopped."""
    psycopg = driver()
    from psycopg import pq  # noqa: PLC0415 - optional

    raw = connection.pgconn
    rows: list[bytes] = []
    size = 0
    try:
        result = raw.exec_(f"COPY ({query}) TO STDOUT".encode())
        if result.status != pq.ExecStatus.COPY_OUT:
            raise translated(_server_error(result), "read a table")
        for row in _copied(raw, stopped):
            rows.append(row)
            size += len(row)
            if len(rows) >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield b"".join(rows)
                rows, size = [], 0
    except psycopg.Error as error:
        raise RetriableError(f"The connection was lost while a table was read: {error}") from error
    if rows:
        yield b"".join(rows)


def _copied(raw: Any, stopped: Callable[[], bool]) -> Iterator[bytes]:
    get = raw.get_copy_data
    while True:
        size, row = get(1)
        if size > 0:
            yield bytes(row)
        elif size < 0:
            _finish(raw)
            return
        else:
            if stopped():
                return
            if wait_readable(raw.socket, SILENCE_S):
                raw.consume_input()


def _finish(raw: Any) -> None:
    from psycopg import pq  # noqa: PLC0415 - optional

    while (result := raw.get_result()) is not None:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise translated(_server_error(result), "read a table")


def _server_error(result: Any) -> Exception:
    from psycopg import errors, pq  # noqa: PLC0415 - optional

    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    message = result.get_error_message()
    try:
        return errors.lookup(state.decode())(message)
    except KeyError:
        return errors.DatabaseError(message)
