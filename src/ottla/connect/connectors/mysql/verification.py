"""The tables of a configuration and their rows, for the comparison with topics (`capture.verification`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.capture.verification import Converted, Rows, TableName, as_it_is, no_key
from ottla.connect.connectors.mysql import catalog
from ottla.connect.connectors.mysql.catalog import Table
from ottla.connect.connectors.mysql.events import EventMaker
from ottla.connect.connectors.mysql.session import connect, errors
from ottla.connect.connectors.mysql.snapshot import rows_of
from ottla.connect.errors import ConnectError


def table_names(options: Options) -> Sequence[TableName]:
    """Return the names of the captured tables."""
    connection: Any = connect(options)
    try:
        return [TableName(each.schema, each.name) for each in _captured(connection, options)]
    finally:
        connection.close()


def _captured(connection: Any, options: Options) -> list[Table]:
    maker = EventMaker(options, "mariadb")
    with errors(options, "read the catalog"), connection.cursor() as cursor:
        return [each for each in catalog.tables(cursor) if maker.captures(each.schema, each.name)]


def table_rows(options: Options, name: TableName, converted: Converted = as_it_is) -> Rows:
    """Yield keys and rows of a table, as its events have them. Raises ConnectError."""
    connection: Any = connect(options)
    try:
        found = [each for each in _captured(connection, options) if (each.schema, each.name) == name]
        if not found:
            raise ConnectError(f"Table {name} does not exist, or is not captured.")
        events = EventMaker(options, "mariadb").table(found[0])
        if events.key_schema is None:
            raise no_key(name)
        with errors(options, f"read {name}"):
            for values in rows_of(connection, events.table):
                row = events.row(values)
                yield converted((events.key_schema, events.key(row)), (events.value_schema, row))
    finally:
        connection._force_close()  # noqa: SLF001 - close() would read the rest of the result
