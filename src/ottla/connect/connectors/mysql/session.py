"""Connections to the server, and errors of the driver as Connect's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pymysql

from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.mysql.positions import LogPosition
from ottla.connect.errors import ConnectError, RetriableError

READ_TIMEOUT_S: Final = 60
_REFUSED: Final = frozenset({1044, 1045, 1049, 1142, 1227, 1236})


def settings(options: Options) -> dict[str, Any]:
    """Return the arguments of a connection."""
    password = options.values["database.password"]
    ca = options.text("database.ssl.ca")
    return {
        "host": options.text("database.hostname"),
        "port": options.number("database.port"),
        "user": options.text("database.user"),
        "password": "" if password is None else password.secret,
        "charset": "utf8mb4",
        "connect_timeout": max(1, options.number("connect.timeout.ms") // 1000),
        "read_timeout": READ_TIMEOUT_S,
        "write_timeout": READ_TIMEOUT_S,
        **({"ssl": {"ca": ca}} if ca else {}),
    }


@contextmanager
def errors(options: Options, what: str) -> Iterator[None]:
    """Turn a driver's error into RetriableError, or ConnectError if a retry does not help."""
    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        code = error.args[0] if error.args else 0
        where = f"{options.text('database.hostname')}:{options.number('database.port')}"
        text = f"Could not {what} at {where}: {type(error).__name__}: {error}"
        final = code in _REFUSED or isinstance(error, pymysql.ProgrammingError)
        raise (ConnectError if final else RetriableError)(text) from error


def connect(options: Options) -> Any:
    """Open a connection in autocommit mode and UTC. Raises RetriableError and ConnectError."""
    with errors(options, "connect"):
        return pymysql.connect(**settings(options), autocommit=True, init_command="set time_zone = '+00:00'")


def is_mariadb(connection: Any) -> bool:
    """Whether the server is MariaDB."""
    return "mariadb" in connection.get_server_info().lower()


def current_position(cursor: Any) -> LogPosition:
    """Return the end of the log. Raises ConnectError if the server has no binary log."""
    try:
        cursor.execute("show master status")
    except pymysql.ProgrammingError:  # MySQL 8.4
        cursor.execute("show binary log status")
    row = cursor.fetchone()
    if row is None:
        raise ConnectError("The server has no binary log: set log_bin, and restart it")
    return LogPosition(row[0], int(row[1]))


def binary_logs(options: Options) -> list[str]:
    """Return the names of the binary logs. The server writes the last one."""
    connection: Any = connect(options)
    try:
        with errors(options, "read the names of the binary logs"), connection.cursor() as cursor:
            cursor.execute("show binary logs")
            return [row[0] for row in cursor.fetchall()]
    finally:
        connection.close()


def log_is_missing(cursor: Any, position: LogPosition) -> str:
    """Return why the log does not have a position any more, as a sentence, or an empty text."""
    cursor.execute("show binary logs")
    sizes = {row[0]: int(row[1]) for row in cursor.fetchall()}
    if position.file not in sizes:
        return f"The binary log {position.file} was purged: the changes from {position} on are lost."
    if position.pos > sizes[position.file]:
        return f"The binary log {position.file} ends before {position}: the server has lost its end, or is another one."
    return ""
