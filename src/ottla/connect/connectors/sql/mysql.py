"""MariaDB and MySQL, by PyMySQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import pymysql
from pymysql.constants import FIELD_TYPE, FLAG
from pymysql.cursors import SSCursor

from ottla.connect.connectors.sql.columns import Column
from ottla.connect.connectors.sql.database import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, Database, TableName
from ottla.connect.connectors.sql.statements import insert, no_type
from ottla.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type

_TYPES: Final = {
    Type.INT8: "TINYINT",
    Type.INT16: "SMALLINT",
    Type.INT32: "INT",
    Type.INT64: "BIGINT",
    Type.FLOAT32: "FLOAT",
    Type.FLOAT64: "DOUBLE",
    Type.BOOLEAN: "TINYINT",
    Type.STRING: "LONGTEXT",
    Type.BYTES: "LONGBLOB",
}
_KEYS: Final = {Type.STRING: "VARCHAR(255)", Type.BYTES: "VARBINARY(1024)"}
_LOGICAL: Final = {DATE: "DATE", TIME: "TIME(3)", TIMESTAMP: "DATETIME(3)"}
_COLUMNS: Final = """
select column_name, data_type, is_nullable, numeric_scale, column_type, column_key, character_maximum_length
from information_schema.columns where table_schema = coalesce(nullif(%s, ''), database()) and table_name = %s
order by ordinal_position
"""
_CODES: Final = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.BIT: "bit",
}
_BINARY: Final = 63
_CONFLICTS: Final = frozenset({1205, 1213})
_REFUSED: Final = frozenset({1044, 1045, 1049, 1142, 1146, 1054, 1064})
_MISFITS: Final = frozenset({1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406, 1451, 1452, 4025, 3819})
_LOST: Final = frozenset({1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927})


class Mysql(Database):
    """A database of a MariaDB or MySQL server, in strict mode and UTC."""

    quote_mark: ClassVar[str] = "`"
    driver_errors: ClassVar[tuple[type[Exception], ...]] = (pymysql.MySQLError, OSError)

    def _open(self) -> pymysql.connections.Connection[Any]:
        given = self.address
        return pymysql.connect(
            host=given.host,
            port=given.port,
            user=given.user or None,
            password=given.password,
            database=given.database,
            charset="utf8mb4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            write_timeout=READ_TIMEOUT_S,
            init_command="set time_zone = '+00:00', sql_mode = concat(@@sql_mode, ',STRICT_ALL_TABLES')",
        )

    def classify(self, error: BaseException) -> str:
        if isinstance(error, OSError):
            return "retry"
        if not isinstance(error, pymysql.MySQLError):
            return ""
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        if code in _MISFITS or isinstance(error, pymysql.err.DataError):
            return "data"
        lost = code in _CONFLICTS or code in _LOST or 2000 <= code < 3000 or code == 0
        return "retry" if lost and code not in _REFUSED else "other"

    def tables(self) -> list[TableName]:
        found = self.rows(
            "select table_schema, table_name from information_schema.tables "
            "where table_type = 'BASE TABLE' and table_schema = database()"
        )
        return [TableName(*each) for each in found]

    def columns(self, table: TableName) -> list[Column]:
        return [
            Column(name, kind.lower(), nullable == "YES", scale, "unsigned" in full, key == "PRI", length, full)
            for name, kind, nullable, scale, full, key, length in self.rows(_COLUMNS, [table.schema, table.table])
        ]

    def query_columns(self, cursor: Any, source: str) -> list[Column]:
        del source
        found = []
        for each in cursor._result.fields:  # noqa: SLF001 - the description lacks flags and the character set
            blob = "blob" if each.charsetnr == _BINARY else "text"
            kind = _CODES.get(each.type_code, blob)
            found.append(Column(each.name, kind, True, each.scale, bool(each.flags & FLAG.UNSIGNED)))
        return found

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = self.connection.cursor(SSCursor)
        cursor.execute(statement, [self.parameter(each) for each in values] if values else ())
        return cursor

    def type_of(self, schema: Schema, *, key: bool) -> str:
        if schema.name == DECIMAL:
            return f"DECIMAL(65,{schema.parameters['scale']})"
        found = _LOGICAL.get(schema.name or "") or (_KEYS.get(schema.type) if key else None) or _TYPES.get(schema.type)
        if found is None:
            raise no_type(schema)
        return found

    def upsert(self, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
        others = [self.quoted(each) for each in names if each not in keys] or [self.quoted(keys[0])]
        changes = ", ".join(f"{each} = values({each})" for each in others)
        return f"{insert(self, table, names)} on duplicate key update {changes}"

    def now(self) -> Any:
        return self.rows("select utc_timestamp(6)")[0][0]

    def parameter(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        return value
