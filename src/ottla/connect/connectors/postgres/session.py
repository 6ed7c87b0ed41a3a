"""Connections to PostgreSQL: parameters, session settings, and which errors pass by themselves.

All text that the server sends is in one form (ISO dates, hex bytes, UTC, C locale), so that one parser serves both the
snapshot (COPY) and the stream (pgoutput).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.errors import ConnectError, RetriableError

if TYPE_CHECKING:
    import psycopg

SESSION: Final = {
    "datestyle": "ISO,YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmloption": "content",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
# Classes of SQLSTATE that end without a change of the configuration: connection, resources, operator, system errors,
# and serialization.
_PASSING: Final = ("08", "40", "53", "57", "58", "XX")
_IN_USE: Final = "55006"


def parameters(options: Options, *, replication: bool = False) -> dict[str, Any]:
    """Return libpq's connection parameters."""
    given: dict[str, Any] = {
        "host": options.text("database.hostname"),
        "port": options.number("database.port"),
        "user": options.text("database.user"),
        "dbname": options.text("database.dbname"),
        "sslmode": options.text("database.sslmode"),
        "connect_timeout": max(2, options.number("database.connect.timeout.ms") // 1000),
        "keepalives": int(options.flag("database.tcpKeepAlive")),
        "keepalives_idle": 30,
        "tcp_user_timeout": 60_000,
        "application_name": f"ottla {options.prefix}"[:63],
        "client_encoding": "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
    }
    for name in ("sslcert", "sslkey", "sslrootcert"):
        if options.values[f"database.{name}"]:
            given[name] = options.text(f"database.{name}")
    for name, setting in (("password", "database.password"), ("sslpassword", "database.sslpassword")):
        if options.values[setting] is not None:
            given[name] = options.values[setting].secret
    if replication:
        given["replication"] = "database"
    return given


def connect(options: Options) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode. Raises RetriableError or ConnectError."""
    driver()
    import psycopg  # noqa: PLC0415 - optional

    with errors(options, "connect"):
        connection: psycopg.Connection[Any] = psycopg.connect(
            **parameters(options), autocommit=True, prepare_threshold=None
        )
        statements = options.values["database.initial.statements"]
        if statements:
            connection.execute(statements)
        return connection


def driver() -> Any:
    """Import psycopg. Raises ConnectError with the command that installs it."""
    try:
        import psycopg  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConnectError("The PostgreSQL connector needs psycopg: run pip install 'ottla[postgres]'.") from error
    return psycopg


@contextmanager
def errors(options: Options, doing: str) -> Iterator[None]:
    """Turn the driver's errors into the worker's."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, f"{doing} at {place(options)}") from error


def place(options: Options) -> str:
    """Name the server for messages."""
    return f"{options.text('database.hostname')}:{options.number('database.port')}/{options.text('database.dbname')}"


def translated(error: Exception, doing: str) -> ConnectError:
    """Return the worker's error for one of the driver."""
    state = str(getattr(error, "sqlstate", None) or "")
    text = f"PostgreSQL could not {doing}: {str(error).strip()}"
    # Without a state the connection could not be opened, or was cut; a wrong password and an unknown database have one.
    unusable = state == "" or state[:2] in _PASSING or state == _IN_USE
    if unusable and not any(each in text for each in ("password authentication failed", "no pg_hba.conf entry")):
        return RetriableError(text)
    return ConnectError(text)
