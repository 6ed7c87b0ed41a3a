"""SQLite, by Python's own driver. Types are declared names; timestamps are ISO texts or milliseconds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.connectors.sql.columns import Column
from ottla.connect.connectors.sql.database import CONNECT_TIMEOUT_S, Database, TableName
from ottla.connect.connectors.sql.statements import conflict_upsert, no_type
from ottla.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

_DECLARED: Final = re.compile(r"\s*([a-z ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", re.IGNORECASE)
_FORMAT: Final = "%Y-%m-%d %H:%M:%f"
_TYPES: Final = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN), "INTEGER"),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "REAL"),
    Type.STRING: "TEXT",
    Type.BYTES: "BLOB",
}
_LOGICAL: Final = {DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP", DECIMAL: "TEXT"}
_INTEGERS: Final = frozenset({"int", "tinyint", "smallint", "mediumint", "bigint"})


class Sqlite(Database):
    """A SQLite file."""

    mark: ClassVar[str] = "?"
    driver_errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error, OverflowError)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.address.database, timeout=CONNECT_TIMEOUT_S)

    def classify(self, error: BaseException) -> str:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError, OverflowError)):
            return "data"
        if isinstance(error, sqlite3.OperationalError):
            return "retry" if "locked" in str(error) or "unable to open" in str(error) else "other"
        return "other" if isinstance(error, sqlite3.Error) else ""

    def tables(self) -> list[TableName]:
        found = self.rows(
            "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
        )
        return [TableName("", each[0]) for each in found]

    def columns(self, table: TableName) -> list[Column]:
        found = self.rows('select name, type, "notnull", pk from pragma_table_info(?)', [table.table])
        return [_column(name, declared, not (notnull or key), bool(key)) for name, declared, notnull, key in found]

    def query_columns(self, cursor: Any, source: str) -> list[Column]:
        """Take the types of the first row: SQLite does not have types of queries."""
        names = [each[0] for each in cursor.description if each[0] != "ottla_time"]
        kinds = ", ".join(f"typeof({self.quoted(each)})" for each in names)
        found = self.rows(f"select {kinds} from {source} limit 1")
        row = found[0] if found else [""] * len(names)
        return [Column(*each) for each in zip(names, row, strict=True)]

    def begin(self) -> None:
        """Begin a transaction that may write; the driver would not, and a savepoint alone commits at its release."""
        if not self.connection.in_transaction:
            self.connection.execute("begin immediate")

    def type_of(self, schema: Schema, *, key: bool) -> str:
        del key
        found = _LOGICAL.get(schema.name or "") or _TYPES.get(schema.type)
        if found is None:
            raise no_type(schema)
        return found

    def upsert(self, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
        return conflict_upsert(self, table, names, keys)

    def timestamp_of(self, columns: Sequence[str]) -> str:
        texts = []
        for each in columns:
            name = self.quoted(each)
            texts.append(
                f"case typeof({name}) when 'integer' then strftime('{_FORMAT}', {name} / 1000.0, 'unixepoch') "
                f"else strftime('{_FORMAT}', {name}) end"
            )
        return texts[0] if len(texts) == 1 else f"coalesce({', '.join(texts)})"

    def now(self) -> Any:
        return datetime.fromisoformat(self.rows(f"select strftime('{_FORMAT}', 'now')")[0][0])

    def parameter(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
        if isinstance(value, (date, time)):
            return value.isoformat()
        return str(value) if isinstance(value, Decimal) else value


def _column(name: str, declared: str, nullable: bool, key: bool) -> Column:
    found = _DECLARED.fullmatch(declared)
    kind = (found[1] if found else declared).lower()
    scale = int(found[3] or 0) if found and found[2] and kind in ("decimal", "numeric") else None
    if kind in _INTEGERS:  # all integers of SQLite have 64 bits
        kind = "integer"
    return Column(name, kind, nullable, scale, key=key, full_type=declared)
