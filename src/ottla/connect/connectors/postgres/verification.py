"""The tables of a configuration and their rows, for the comparison with topics (`capture.verification`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.connect.connectors.capture.filters import Filters
from ottla.connect.connectors.capture.verification import Converted, Rows, TableName, as_it_is, no_key
from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.copying import copy_blocks, rows_of
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.session import connect, errors
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.snapshots import query_of
from ottla.connect.connectors.postgres.tables import captured
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    import psycopg


def table_names(options: Options) -> Sequence[TableName]:
    """Return the names of the captured tables."""
    connection = connect(options)
    try:
        tables = Catalog(connection, options).tables()
        return [TableName(each.schema, each.name) for each in captured(tables, Filters(options), options)]
    finally:
        connection.close()


def table_rows(options: Options, name: TableName, converted: Converted = as_it_is) -> Rows:
    """Yield keys and rows of a table, as its events have them. Raises ConnectError."""
    connection = connect(options)
    try:
        catalog = Catalog(connection, options)
        found = [each for each in catalog.tables() if (each.schema, each.name) == name]
        if not found:
            raise ConnectError(f"Table {name} does not exist in {options.text('database.dbname')}.")
        types = catalog.types([each.type_oid for each in found[0].columns])
        events = EventMaker(options).table(found[0], types)
        with errors(options, f"read {name}"):
            yield from _rows(connection, events, name, converted)
    finally:
        connection.close()


def _rows(connection: psycopg.Connection[Any], events: TableEvents, name: TableName, converted: Converted) -> Rows:
    key_of, encode = events.encoder.key, events.encoder.slow
    if key_of is None:
        raise no_key(name)
    for block in copy_blocks(connection, query_of(events)):
        for texts in rows_of(block):
            row = encode(texts)
            yield converted((events.key_schema, key_of(row)), (events.value_schema, row))
