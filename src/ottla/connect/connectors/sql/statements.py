"""Statements that several databases share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.connect.data import Schema
from ottla.connect.errors import DataError

if TYPE_CHECKING:
    from ottla.connect.connectors.sql.database import Database, TableName


def no_type(schema: Schema) -> DataError:
    """Return the error for a schema that has no type in a table."""
    return DataError(f"A column cannot have the type {schema.type}: use the transform Flatten before")


def insert(database: Database, table: TableName, names: Sequence[str]) -> str:
    """Return the statement that inserts a row."""
    columns = ", ".join(database.quoted(each) for each in names)
    return f"insert into {database.table(table)} ({columns}) values ({', '.join([database.mark] * len(names))})"


def update(database: Database, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the statement that changes a row; its parameters are the other columns, then the keys."""
    changes = ", ".join(f"{database.quoted(each)} = {database.mark}" for each in names if each not in keys)
    return f"update {database.table(table)} set {changes} where {_keys(database, keys)}"


def delete(database: Database, table: TableName, keys: Sequence[str]) -> str:
    """Return the statement that deletes a row."""
    return f"delete from {database.table(table)} where {_keys(database, keys)}"


def _keys(database: Database, keys: Sequence[str]) -> str:
    return " and ".join(f"{database.quoted(each)} = {database.mark}" for each in keys)


def conflict_upsert(database: Database, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
    """Return INSERT ... ON CONFLICT."""
    columns = ", ".join(database.quoted(each) for each in keys)
    changes = ", ".join(f"{q} = excluded.{q}" for q in (database.quoted(n) for n in names if n not in keys))
    action = f"do update set {changes}" if changes else "do nothing"
    return f"{insert(database, table, names)} on conflict ({columns}) {action}"
