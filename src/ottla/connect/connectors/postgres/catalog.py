"""PostgreSQL's catalog as plain objects: types by number, tables with columns and keys.

Definitions are current ones, not from the time of a change; the stream may bring other types and modifiers of columns.
Every query is made through `Catalog._rows`, so that a server that is lost at any time is an error that passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.session import errors
from ottla.connect.connectors.postgres.settings import Options

if TYPE_CHECKING:
    import psycopg

MOST_DOMAINS: Final = 32


@dataclass(frozen=True)
class PgType:
    """A row of pg_type."""

    oid: int
    schema: str
    name: str
    kind: str
    """b (base), c (composite), d (domain), e (enum), r (range) or m (multirange)."""
    category: str
    element: int
    base: int
    base_modifier: int
    labels: Sequence[str] = ()

    @property
    def is_array(self) -> bool:
        """Whether it is a true array type."""
        return self.category == "A" and self.element != 0


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    type_oid: int
    modifier: int
    optional: bool
    default: str | None = None
    generated: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its key: the primary key, or the first unique index without expressions, or nothing."""

    oid: int
    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    identity: str = "d"
    kind: str = "r"
    """r (ordinary) or p (partitioned)."""
    partition: bool = False
    pages: int = 0
    rows: int = 0
    identity_columns: tuple[str, ...] = field(default=())

    @property
    def full_name(self) -> str:
        """SCHEMA.TABLE, as filters and transaction metadata have it."""
        return f"{self.schema}.{self.name}"


_TYPES = """
select t.oid, n.nspname, t.typname, t.typtype, t.typcategory, t.typelem, t.typbasetype, t.typtypmod,
       coalesce((select array_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid), '{}')
from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.oid = any(%s)"""

_TABLES = """
select c.oid, n.nspname, c.relname, c.relreplident, c.relkind, c.relispartition,
       case when c.relkind = 'r' then pg_relation_size(c.oid) / current_setting('block_size')::int else 0 end,
       greatest(c.reltuples, 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relpersistence = 'p'
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'"""

_COLUMNS = """
select a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated <> '',
       case when a.attgenerated = '' then pg_get_expr(d.adbin, d.adrelid) end
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = any(%s) and a.attnum > 0 and not a.attisdropped order by a.attrelid, a.attnum"""

_KEYS = """
select i.indrelid, i.indisprimary, i.indisreplident,
       (select array_agg(a.attname order by k.ord)
        from unnest(i.indkey) with ordinality k(num, ord)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.num where k.ord <= i.indnkeyatts)
from pg_index i join pg_class c on c.oid = i.indexrelid
where i.indrelid = any(%s) and i.indisunique and i.indisvalid and i.indexprs is null and i.indpred is null
order by i.indisprimary desc, c.relname"""


class Catalog:
    """Reads the catalog, and remembers types. Methods raise RetriableError if the server is lost."""

    def __init__(self, connection: psycopg.Connection[Any], options: Options) -> None:
        self._connection, self._options = connection, options
        self._types: dict[int, PgType] = {}

    def _rows(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        with errors(self._options, "read the catalog"):
            return self._connection.execute(query, given).fetchall()

    def types(self, oids: Sequence[int]) -> Mapping[int, PgType]:
        """Return types by number, with their elements and bases."""
        wanted = [each for each in oids if each not in self._types]
        for _ in range(MOST_DOMAINS):
            if not wanted:
                break
            found = [PgType(*row) for row in self._rows(_TYPES, wanted)]
            self._types.update((each.oid, each) for each in found)
            related = {each.element for each in found} | {each.base for each in found}
            wanted = [each for each in related if each and each not in self._types]
        return self._types

    def forget_types(self) -> None:
        """Read types again: an enum has got labels."""
        self._types.clear()

    def tables(self, oids: Sequence[int] | None = None) -> list[Table]:
        """Return the ordinary and partitioned tables, or those with these numbers, by name."""
        given = [] if oids is None else [oids]
        query = _TABLES if oids is None else f"{_TABLES} and c.oid = any(%s)"
        rows = self._rows(f"{query} order by 2, 3", *given)
        numbers = [row[0] for row in rows]
        columns: dict[int, list[TableColumn]] = {each: [] for each in numbers}
        for oid, name, type_oid, modifier, required, generated, default in self._rows(_COLUMNS, numbers):
            columns[oid].append(TableColumn(name, type_oid, modifier, not required, default, generated))
        keys: dict[int, tuple[str, ...]] = {}
        identities: dict[int, tuple[str, ...]] = {}
        for oid, primary, replica, names in self._rows(_KEYS, numbers):
            keys.setdefault(oid, tuple(names))
            if replica or primary:
                identities[oid] = tuple(names) if replica else identities.get(oid, tuple(names))
        self.types(sorted({each.type_oid for some in columns.values() for each in some}))
        return [
            Table(
                oid,
                schema,
                name,
                tuple(columns[oid]),
                keys.get(oid, ()),
                identity,
                kind,
                partition,
                pages,
                count,
                identities.get(oid, ()),
            )
            for oid, schema, name, identity, kind, partition, pages, count in rows
        ]

    def table(self, oid: int) -> Table | None:
        """Return a table by its number, or None if it has been dropped."""
        return next(iter(self.tables([oid])), None)


def resolved(types: Mapping[int, PgType], oid: int, modifier: int) -> tuple[PgType | None, int]:
    """Return the base type of a domain, and its modifier; other types as they are."""
    for _ in range(MOST_DOMAINS):
        found = types.get(oid)
        if found is None or found.kind != "d":
            return found, modifier
        oid, modifier = found.base, found.base_modifier if modifier < 0 else modifier
    return None, modifier
