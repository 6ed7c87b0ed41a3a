"""The tables of the stream: definitions as the server sends them, completed from the catalog."""

from __future__ import annotations

from dataclasses import replace

from ottla.connect.connectors.postgres.catalog import Catalog, Table, TableColumn
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.pgoutput import Relation
from ottla.connect.errors import ConnectError


class Relations:
    """The events of each table that the stream has defined."""

    def __init__(self, maker: EventMaker, catalog: Catalog) -> None:
        self._maker, self._catalog = maker, catalog
        self._events: dict[int, TableEvents | None] = {}
        self._relations: dict[int, Relation] = {}

    def define(self, relation: Relation) -> None:
        """Take a definition, which replaces an older one."""
        self._relations[relation.oid] = relation
        self._events[relation.oid] = self._table(relation)

    def events(self, oid: int) -> TableEvents | None:
        """Return the events of a table, or None if it is not captured. Raises ConnectError for an unknown table."""
        try:
            return self._events[oid]
        except KeyError:
            raise ConnectError(f"PostgreSQL sent a change of table {oid} without its definition.") from None

    def refreshed(self, oid: int) -> TableEvents:
        """Read the types of a table again: an enum has got a label."""
        self._catalog.forget_types()
        events = self._events[oid] = self._table(self._relations[oid])
        if events is None:
            raise ConnectError(f"Table {oid} is not captured any more.")
        return events

    def _table(self, relation: Relation) -> TableEvents | None:
        name = f"{relation.schema}.{relation.table}"
        filters = self._maker.filters
        if name != filters.signals and not filters.captures(relation.schema, relation.table):
            return None
        table = self._catalog.table(relation.oid) or _dropped(relation)
        known = {each.name: each for each in table.columns}
        columns = []
        for each in relation.columns:
            now = known.get(each.name)
            optional = not each.key if now is None else now.optional
            default = None if now is None else now.default
            columns.append(TableColumn(each.name, each.type_oid, each.modifier, optional, default))
        types = self._catalog.types([each.type_oid for each in relation.columns])
        return self._maker.table(replace(table, schema=relation.schema, name=relation.table), types, columns)


def _dropped(relation: Relation) -> Table:
    key = tuple(each.name for each in relation.columns if each.key) if relation.identity != "f" else ()
    return Table(relation.oid, relation.schema, relation.table, (), key, relation.identity)
