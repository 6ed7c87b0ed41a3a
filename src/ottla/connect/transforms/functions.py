"""Transformations by code of the user: a Python function, or SQL expressions.

`PythonFunction` calls `function` (`module:attribute`) with each record; the function returns a record or None.

`Sql` computes a new value from the fields of the value: `select` is a list of expressions as in SQL, `where` drops
records. SQLite, which is part of Python, evaluates them. Beside the fields there are `__topic`, `__partition`,
`__timestamp` and `__key`; nested values are JSON texts (`json_extract(address, '$.city')`).
"""

from __future__ import annotations

import importlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, invalid
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import ConnectRecord
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import required_map, required_struct

_LIMIT_S: Final = 1.0
_STEPS: Final = 10_000
_MOST_STATEMENTS: Final = 100
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_NAME: Final = r'(?:"((?:[^"]|"")+)"|([A-Za-z_]\w*))'
_COLUMN: Final = re.compile(rf"\s*{_NAME}(?:\s+AS\s+{_NAME})?\s*", re.IGNORECASE)
_METADATA: Final = ("__topic", "__partition", "__timestamp", "__key")
_COMPUTED: Final = {int: data.OPTIONAL_INT64, float: data.OPTIONAL_FLOAT64, str: data.OPTIONAL_STRING,
                    bytes: data.OPTIONAL_BYTES}  # fmt: skip


class PythonFunction(Transformation):
    """Call a Python function with each record."""

    version: ClassVar = "1"
    config_def: ClassVar = ConfigDef(
        [Setting("function", SettingType.STRING, "The function, as module:attribute.", importance=Importance.HIGH)]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        """Import the function."""
        self._name: str = self.config_def.parse(config)["function"]
        module, _, attribute = self._name.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise invalid("function", self._name, f"It cannot be imported: {error}") from error
        if not callable(found):
            raise invalid("function", self._name, "It is not a function")
        self._function: Callable[[ConnectRecord], ConnectRecord | None] = found

    def apply(self, record: R) -> R | None:
        """Return what the function returns. Its errors are errors of the record."""
        try:
            changed = self._function(record)
        except DataError:
            raise
        except Exception as error:  # the function of a user may raise anything
            raise DataError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        if changed is not None and not isinstance(changed, type(record)):
            raise DataError(f"{self._name} returned {type(changed).__name__}, not a record or None")
        return changed


class _Column(NamedTuple):
    """A column of the result: a copied field, or a computed value."""

    name: str
    source: str | None


class Sql(Transformation):
    """Compute a new value, or drop the record, by expressions of SQL."""

    version: ClassVar = "1"
    config_def: ClassVar = ConfigDef(
        [
            Setting("select", SettingType.STRING, "The fields of the new value: expressions of SQL, * for all fields.",
                    "*", Importance.HIGH),
            Setting("where", SettingType.STRING, "The condition of records that go on.", "", Importance.HIGH),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        """Open a database in memory, which nothing can be written to."""
        settings = self.config_def.parse(config)
        self._select: str = settings["select"]
        self._where: str = settings["where"].strip()
        self._items = _items(self._select)
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._database.set_authorizer(_authorized)
        self._database.set_progress_handler(self._is_late, _STEPS)
        self._deadline = 0.0
        self._statements: dict[tuple[str, ...], tuple[str, list[_Column]]] = {}
        self._types: dict[tuple[Schema, str], Schema] = {}
        self._schemas: dict[tuple[Schema, tuple[Schema, ...]], Schema] = {}
        self._check()

    def _check(self) -> None:
        """Refuse what is not SQL before the first record; unknown columns depend on the records."""
        for text in (self._select, self._where):
            if ";" in re.sub(r"'[^']*'|\"[^\"]*\"", "", text):
                raise SettingError("An expression of SQL has no semicolon")
        try:
            self._database.execute(f"SELECT {self._select} FROM (SELECT 1 AS x) WHERE {self._where or '1'}")  # noqa: S608
        except sqlite3.Error as error:
            if "no such column" not in str(error):
                raise SettingError(f"The SQL expression is not valid: {error}") from error

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _is_late(self) -> int:
        return time.monotonic() > self._deadline

    def apply(self, record: R) -> R | None:
        """Return the record with its new value."""
        schema = record.value_schema
        if record.value is None:
            return record
        purpose = "SQL"
        value = (
            required_map(record.value, purpose) if schema is None else required_struct(schema, record.value, purpose)
        )
        names = tuple(value) if schema is None else tuple(each.name for each in schema.fields)
        statement, columns = self._statements.get(names) or self._prepare(names)
        bound = [_bound(value.get(name)) for name in names]
        bound += [record.topic, record.partition, record.timestamp, _bound(record.key)]
        self._deadline = time.monotonic() + _LIMIT_S
        try:
            row = self._database.execute(statement, bound).fetchone()
        except (sqlite3.Error, OverflowError) as error:
            reason = f"it took more than {_LIMIT_S:g} s" if "interrupted" in str(error) else str(error)
            raise DataError(f"The SQL expression failed: {reason}") from error
        if row is None:
            return None
        changed = {
            column.name: found if column.source is None else value.get(column.source)
            for column, found in zip(columns, row, strict=True)
        }
        return replace(record, value_schema=self._schema(schema, columns, row), value=changed)

    def _prepare(self, names: tuple[str, ...]) -> tuple[str, list[_Column]]:
        columns: list[_Column] = []
        selected = []
        for item in self._items:
            if item == "*":
                columns += [_Column(name, name) for name in names]
                selected += [_quoted(name) for name in names]
                continue
            match = _COLUMN.fullmatch(item)
            source = (match[1] or match[2]).replace('""', '"') if match else None
            known = source if source in names else None
            alias = (match[3] or match[4] or source or "").replace('""', '"') if match else None
            columns.append(_Column(alias or "", known))
            selected.append(item)
        given = ", ".join(f"? AS {_quoted(name)}" for name in (*names, *_METADATA))
        where = f" WHERE {self._where}" if self._where else ""
        statement = f"SELECT {', '.join(selected)} FROM (SELECT {given}){where}"  # noqa: S608
        try:
            cursor = self._database.execute(statement, [None] * (len(names) + len(_METADATA)))
        except sqlite3.Error as error:
            raise DataError(f"The SQL expression does not fit the fields {', '.join(names)}: {error}") from error
        described = [each[0] for each in cursor.description]
        columns = [_Column(each.name or name, each.source) for each, name in zip(columns, described, strict=True)]
        if len(self._statements) >= _MOST_STATEMENTS:
            self._statements.clear()
        self._statements[names] = statement, columns
        return statement, columns

    def _schema(self, schema: Schema | None, columns: list[_Column], row: tuple[Any, ...]) -> Schema | None:
        """Return the schema of the result. A computed field has the type of its first value that is not null."""
        if schema is None:
            return None
        types = []
        for column, found in zip(columns, row, strict=True):
            if column.source is not None:
                types.append(schema.fields_by_name[column.source].schema)
                continue
            key = schema, column.name
            if key not in self._types and found is not None:
                self._types[key] = _COMPUTED[type(found)]
            types.append(self._types.get(key, data.OPTIONAL_STRING))
        made = schema, tuple(types)
        if made not in self._schemas:
            if len(self._schemas) >= _MOST_STATEMENTS:
                self._schemas.clear()
            fields = tuple(Field(column.name, each) for column, each in zip(columns, types, strict=True))
            self._schemas[made] = Schema(Type.STRUCT, name=schema.name, version=schema.version, fields=fields)
        return self._schemas[made]


def _authorized(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _items(select: str) -> list[str]:
    """Divide a list of expressions at its commas outside of parentheses and quotes."""
    items, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(select):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            items.append(select[start:at].strip())
            start = at + 1
    return [*items, select[start:].strip()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bound(value: Any) -> Any:
    """Return a value that SQLite knows."""
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (date, datetime, time_of_day)):
        return value.isoformat()
    return json.dumps(value, default=str)
