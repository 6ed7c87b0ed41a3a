"""PostgreSQL, by psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import psycopg

from ottla.connect.connectors.sql.columns import Column
from ottla.connect.connectors.sql.database import CONNECT_TIMEOUT_S, Database, TableName
from ottla.connect.connectors.sql.statements import conflict_upsert, no_type
from ottla.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

_TYPES: Final = {
    Type.INT8: "SMALLINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "REAL",
    Type.FLOAT64: "DOUBLE PRECISION",
    Type.BOOLEAN: "BOOLEAN",
    Type.STRING: "TEXT",
    Type.BYTES: "BYTEA",
}
_LOGICAL: Final = {DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP", DECIMAL: "DECIMAL"}
_COLUMNS: Final = """
select a.attname, t.typname, not a.attnotnull,
  case when t.typname = 'numeric' and a.atttypmod >= 0 then (a.atttypmod - 4) & 2047 end,
  coalesce(a.attnum = any(i.indkey), false),
  case when t.typname in ('varchar', 'bpchar') and a.atttypmod >= 0 then a.atttypmod - 4 end,
  format_type(a.atttypid, a.atttypmod)
from pg_attribute a join pg_type t on t.oid = a.atttypid
  left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
_CONFLICTS: Final = ("40001", "40P01", "55P03")


class Postgresql(Database):
    """A database of a PostgreSQL server. Times are in UTC."""

    driver_errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)

    def _open(self) -> psycopg.Connection[Any]:
        given = self.address
        options: dict[str, Any] = {name: value for name, value in given.options.items() if name.startswith("ssl")}
        connection = psycopg.connect(
            host=given.host,
            port=given.port,
            dbname=given.database,
            user=given.user or None,
            password=given.password or None,
            connect_timeout=CONNECT_TIMEOUT_S,
            options="-c timezone=UTC -c datestyle=ISO",
            **options,
        )
        connection.prepare_threshold = None
        return connection

    def classify(self, error: BaseException) -> str:
        if isinstance(error, (psycopg.DataError, psycopg.IntegrityError)):
            return "data"
        if isinstance(error, psycopg.errors.DatatypeMismatch):
            return "data"
        if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            refused = isinstance(error, (psycopg.errors.InvalidPassword, psycopg.errors.InvalidCatalogName))
            return "other" if refused else "retry"
        if isinstance(error, psycopg.Error):
            return "retry" if error.sqlstate in _CONFLICTS else "other"
        return ""

    def tables(self) -> list[TableName]:
        found = self.rows(
            "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
        )
        return [TableName(*each) for each in found]

    def columns(self, table: TableName) -> list[Column]:
        return [
            Column(name, kind, nullable, scale, key=key, length=length, full_type=full)
            for name, kind, nullable, scale, key, length, full in self.rows(_COLUMNS, [self.table(table)])
        ]

    def query_columns(self, cursor: Any, source: str) -> list[Column]:
        del source
        found = []
        for each in cursor.description:
            info = self.connection.adapters.types.get(each.type_code)
            found.append(Column(each.name, info.name if info else "text", True, each.scale))
        return found

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = self.connection.cursor("ottla")
        cursor.execute(statement, list(values) or None)
        return cursor

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self.connection.execute(statement, list(values) or None)

    def type_of(self, schema: Schema, *, key: bool) -> str:
        del key
        if schema.name == DECIMAL:
            return f"DECIMAL(1000,{schema.parameters['scale']})"
        found = _LOGICAL.get(schema.name or "") or _TYPES.get(schema.type)
        if found is None:
            raise no_type(schema)
        return found

    def upsert(self, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
        return conflict_upsert(self, table, names, keys)

    def now(self) -> Any:
        return self.rows("select current_timestamp")[0][0]

    def failed_column(self, error: BaseException, table: TableName, row: dict[str, Any]) -> str:
        """Name the column, which most messages of PostgreSQL do not: try each value with its column's type."""
        if isinstance(error, psycopg.Error) and error.diag.column_name:
            return error.diag.column_name
        for column in self.columns(table):
            value = row.get(column.name)
            if value is None:
                continue
            if column.length is not None and isinstance(value, str) and len(value) > column.length:
                return column.name
            try:
                with self.connection.transaction():
                    self.connection.execute(f"select cast(%s as {column.full_type})", [value])
            except psycopg.DataError:
                return column.name
        return super().failed_column(error, table, row)
