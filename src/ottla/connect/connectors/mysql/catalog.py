"""Definitions of tables: from the catalog for snapshots, and from the table maps of the binary log for the stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pymysqlreplication.constants import FIELD_TYPE

from ottla.connect.connectors.mysql.columns import Column
from ottla.connect.errors import ConnectError

SYSTEM: Final = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_LENGTH: Final = re.compile(r"\((\d+)\)")
_COLUMNS: Final = """
select c.table_schema, c.table_name, c.column_name, c.data_type, c.is_nullable, c.column_type, c.numeric_scale,
  c.datetime_precision, c.numeric_precision, c.character_maximum_length
from information_schema.columns c join information_schema.tables t
  on t.table_schema = c.table_schema and t.table_name = c.table_name
where t.table_type = 'BASE TABLE' and c.table_schema not in %s
order by c.table_schema, c.table_name, c.ordinal_position
"""
_KEYS: Final = """
select table_schema, table_name, column_name from information_schema.key_column_usage
where constraint_name = 'PRIMARY' and table_schema not in %s order by table_schema, table_name, ordinal_position
"""
_CODES: Final = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.TIME2: "time",
    FIELD_TYPE.DATETIME2: "datetime",
    FIELD_TYPE.TIMESTAMP2: "timestamp",
    FIELD_TYPE.ENUM: "enum",
    FIELD_TYPE.SET: "set",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.JSON: "json",
}
_STRINGS: Final = frozenset({FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB})


@dataclass(frozen=True)
class Table:
    """A definition of a table. `schema` is the database."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """DATABASE.TABLE."""
        return f"{self.schema}.{self.name}"


def tables(cursor: Any) -> list[Table]:
    """Read the definitions of all tables."""
    system = tuple(sorted(SYSTEM))
    cursor.execute(_KEYS, [system])
    keys: dict[tuple[str, str], list[str]] = {}
    for schema, name, column in cursor.fetchall():
        keys.setdefault((schema, name), []).append(column)
    cursor.execute(_COLUMNS, [system])
    columns: dict[tuple[str, str], list[Column]] = {}
    for schema, name, *row in cursor.fetchall():
        columns.setdefault((schema, name), []).append(_column(row))
    return [Table(*name, tuple(found), tuple(keys.get(name, ()))) for name, found in columns.items()]


def _column(row: Sequence[Any]) -> Column:
    name, data_type, nullable, full, scale, fraction, precision, length = row
    kind = data_type.lower()
    optional, unsigned = nullable == "YES", "unsigned" in full.lower()
    if kind in _TEXTS:
        return Column(name, "text", optional)
    if kind in _BYTES:
        return Column(name, "binary", optional, padding=(length or 0) if kind == "binary" else 0)
    if kind in ("enum", "set"):
        labels = tuple(each.replace("''", "'") for each in _LABEL.findall(full))
        return Column(name, kind, optional, labels=labels)
    if kind == "bit":
        found = _LENGTH.search(full)
        return Column(name, kind, optional, digits=int(found[1]) if found else precision or 1)
    if kind == "decimal":
        return Column(name, kind, optional, unsigned, scale or 0, precision=precision or 0)
    if kind in ("time", "datetime", "timestamp"):
        return Column(name, kind, optional, digits=fraction or 0)
    if kind == "year":
        return Column(name, kind, optional)
    return Column(name, kind, optional, unsigned)


def mapped(event: Any, where: str) -> Table:
    """Return the definition in a table map. Raises ConnectError if the server does not log names of columns."""
    columns = []
    for index, each in enumerate(event.columns):
        if each.name is None:
            raise ConnectError(
                f"Rows of {event.schema}.{event.table} at {where} have no names of columns: SET GLOBAL "
                "binlog_row_metadata = FULL on the server, and read the tables again (reset the offsets)"
            )
        optional = bool(event.null_bitmask[index // 8] >> (index % 8) & 1)
        columns.append(_mapped(each, optional))
    metadata = event.optional_metadata
    places = list(metadata.simple_primary_key_list or metadata.primary_keys_with_prefix)
    key = tuple(columns[each].name for each in places)
    return Table(event.schema, event.table, tuple(columns), key)


def _mapped(column: Any, optional: bool) -> Column:
    name, code = column.name, column.type
    if code in _STRINGS:
        if column.character_set_name == "binary":
            return Column(name, "binary", optional, padding=column.max_length if code == FIELD_TYPE.STRING else 0)
        return Column(name, "text", optional)
    kind = _CODES.get(code, f"of code {code}")
    if kind == "enum":
        return Column(name, kind, optional, labels=tuple(column.enum_values[1:]))
    if kind == "set":
        return Column(name, kind, optional, labels=tuple(column.set_values))
    if kind == "bit":
        return Column(name, kind, optional, digits=column.bits)
    if kind == "decimal":
        return Column(name, kind, optional, column.unsigned, column.decimals, precision=column.precision)
    if kind in ("time", "datetime", "timestamp"):
        return Column(name, kind, optional, digits=column.fsp)
    if kind == "year":
        return Column(name, kind, optional)
    return Column(name, kind, optional, column.unsigned)
