"""From the texts of a row to a dict: one function compiled for each definition of a table.

The plain conversions are written in place; others call the type's parser. A row with unchanged large values, and the
old row of a delete, of which only the key is known, take the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ottla.connect import data
from ottla.connect.connectors.capture.filters import Change, Filters
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.connectors.postgres.catalog import PgType, Table, TableColumn, resolved
from ottla.connect.connectors.postgres.defaults import default_of
from ottla.connect.connectors.postgres.pgoutput import Unchanged
from ottla.connect.connectors.postgres.types import Codec, Modes, codec
from ottla.connect.data import Schema
from ottla.connect.errors import DataError

Row: TypeAlias = dict[str, Any]
Texts: TypeAlias = Sequence[bytes | str | Unchanged | None]
_PLAIN: Final = {
    ("int", True): "int({0})",
    ("int", False): "int({0})",
    ("str", True): "{0}.decode()",
    ("str", False): "{0}",
    ("bool", True): "{0} == b't'",
    ("bool", False): "{0} == 't'",
    ("", True): "p{1}({0}.decode())",
    ("", False): "p{1}({0})",
}


@dataclass(frozen=True)
class Member:
    """A column that has a field: its place in the row, and how it is emitted."""

    position: int
    column: str
    name: str
    codec: Codec
    schema: Schema


class RowEncoder:
    """Converts rows of one definition of a table."""

    def __init__(self, table: Table, members: Sequence[Member], width: int, key: Sequence[str]) -> None:
        self._table, self.members, self.width = table, members, width
        self.key_names = tuple(each.name for name in key for each in members if each.column == name)
        self.from_bytes = _compiled(members, width, raw=True)
        self.from_text = _compiled(members, width, raw=False)
        self.key = _key_of(self.key_names)

    def slow(self, values: Texts, old: Texts | None = None, *, partial: bool = False) -> Row:
        """Convert any row. `old` replaces unchanged values; in a partial row, unknown values get the type's zero."""
        row: Row = {}
        for each in self.members:
            value = values[each.position] if each.position < len(values) else None
            if isinstance(value, Unchanged) and old is not None:
                value = old[each.position]
            if isinstance(value, Unchanged):
                row[each.name] = each.codec.unavailable
            elif value is None:
                row[each.name] = _unknown(each) if partial else None
            else:
                row[each.name] = self._parsed(each, value)
        return row

    def _parsed(self, member: Member, value: bytes | str) -> Any:
        text = value.decode() if isinstance(value, bytes) else value
        try:
            return member.codec.parse(text)
        except (ValueError, ArithmeticError, IndexError, DataError) as error:
            shown = text if len(text) <= 80 else text[:80] + "..."
            where = f"column {member.column} of table {self._table.full_name}"
            raise DataError(f"{where} has a value that cannot be emitted: {shown!r}: {error}") from error


def _unknown(member: Member) -> Any:
    schema = member.schema
    if schema.optional:
        return None
    return schema.default if schema.has_default else member.codec.fallback


def _compiled(members: Sequence[Member], width: int, *, raw: bool) -> Callable[[Texts], Row]:
    names = [f"v{each}" for each in range(width)]
    parts: list[str] = []
    scope: dict[str, Any] = {}
    for number, each in enumerate(members):
        value = names[each.position]
        if each.codec.plain == "":
            scope[f"p{number}"] = each.codec.parse
        expression = _PLAIN[each.codec.plain, raw].format(value, number)
        parts.append(f"{each.name!r}: None if {value} is None else {expression}")
    target = f"[{', '.join(names)}]" if names else "[]"
    code = f"def encode(values):\n    {target} = values\n    return {{{', '.join(parts)}}}\n"
    exec(compile(code, "<row encoder>", "exec"), scope)  # noqa: S102 - names are quoted, nothing else is from outside
    encode: Callable[[Texts], Row] = scope["encode"]
    return encode


def _key_of(names: Sequence[str]) -> Callable[[Row], Row] | None:
    if not names:
        return None
    scope: dict[str, Any] = {}
    parts = ", ".join(f"{each!r}: row[{each!r}]" for each in names)
    exec(compile(f"def key(row):\n    return {{{parts}}}\n", "<key encoder>", "exec"), scope)  # noqa: S102 - quoted
    key: Callable[[Row], Row] = scope["key"]
    return key


@dataclass(frozen=True)
class ColumnMapping:
    """Turns columns into fields, by the modes, filters and names of a configuration."""

    modes: Modes
    filters: Filters
    names: Names

    def members(self, table: Table, columns: Sequence[TableColumn], types: Mapping[int, PgType]) -> list[Member]:
        """Return the columns with fields, in order."""
        found = []
        for position, column in enumerate(columns):
            if self.filters.has_column(table.full_name, column.name):
                member = self._member(table, position, column, types)
                if member is not None:
                    found.append(member)
        return found

    def _member(self, table: Table, position: int, column: TableColumn, types: Mapping[int, PgType]) -> Member | None:
        found = codec(types, column.type_oid, column.modifier, self.modes)
        base, modifier = resolved(types, column.type_oid, column.modifier)
        if found is None or base is None:
            return None
        change = self.filters.change(table.full_name, column.name)
        hidden = change is not None and found.schema.type is data.Type.STRING and found.schema.name is None
        if not column.optional:
            found = _required(found, column.name)
        default = default_of(column.default, base, found)
        schema = replace(found.schema, optional=column.optional, default=default)
        if hidden and change is not None:
            found = replace(found, parse=_changed(found, change), plain="")
            schema = replace(schema, parameters={**schema.parameters, "masked": "true"})
        if self.filters.propagates(table.full_name, column.name, base.name):
            schema = replace(schema, parameters={**schema.parameters, **_source_type(column, base, modifier)})
        return Member(position, column.name, self.names.field(column.name), found, schema)


def _changed(found: Codec, change: Change) -> Callable[[str], Any]:
    parse = found.parse
    return lambda text: change(parse(text))


def _required(found: Codec, column: str) -> Codec:
    if found.schema.name != data.DECIMAL and found.schema.type is not data.Type.STRUCT:
        return found
    parse = found.parse

    def checked(text: str) -> Any:
        value = parse(text)
        if value is None:
            mode = "decimal.handling.mode to string or double"
            raise DataError(f"{text} of the required column {column} is not a decimal number: set {mode}")
        return value

    return replace(found, parse=checked)


def _source_type(column: TableColumn, base: PgType, modifier: int) -> dict[str, str]:
    given = {"__debezium.source.column.type": base.name.upper(), "__debezium.source.column.name": column.name}
    if base.name == "numeric" and modifier >= 0:
        given["__debezium.source.column.length"] = str((modifier - 4) >> 16 & 0xFFFF)
        given["__debezium.source.column.scale"] = str((modifier - 4) & 0x7FF)
    elif base.name in ("varchar", "bpchar") and modifier >= 0:
        given["__debezium.source.column.length"] = str(modifier - 4)
    return given
