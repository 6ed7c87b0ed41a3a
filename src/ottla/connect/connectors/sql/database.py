"""A connection to a database, with the differences between databases behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

from ottla.connect.connectors.sql.columns import Column
from ottla.connect.connectors.sql.urls import Address
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, RetriableError

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 300


class TableName(NamedTuple):
    """A table; `schema` is empty for the default one."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read TABLE, SCHEMA.TABLE or DATABASE.SCHEMA.TABLE, with or without quotes."""
        parts = [each.strip('"`[] ') for each in text.split(".")]
        return cls(parts[-2] if len(parts) > 1 else "", parts[-1])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


class Database(ABC):
    """An open connection. Statements use `mark` for parameters; a transaction is open after the first statement."""

    mark: ClassVar[str] = "%s"
    driver_errors: ClassVar[tuple[type[Exception], ...]]
    quote_mark: ClassVar[str] = '"'

    def __init__(self, address: Address) -> None:
        self.address = address
        with self.errors("connect"):
            self.connection = self._open()

    @abstractmethod
    def _open(self) -> Any: ...

    @abstractmethod
    def classify(self, error: BaseException) -> str:
        """Return `retry` for lost connections and conflicts, `data` for a row that does not fit, `other`, or ``."""

    @abstractmethod
    def tables(self) -> list[TableName]:
        """Return the tables of the database."""

    @abstractmethod
    def columns(self, table: TableName) -> list[Column]:
        """Return the columns of a table, in order; none if it does not exist."""

    @abstractmethod
    def query_columns(self, cursor: Any, source: str) -> list[Column]:
        """Return the columns of a query that a cursor has run; `source` is the query in parentheses."""

    @abstractmethod
    def type_of(self, schema: Schema, *, key: bool) -> str:
        """Return the type of a new column. Raises DataError for schemas without a type."""

    @abstractmethod
    def upsert(self, table: TableName, names: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that inserts or updates a row."""

    def timestamp_of(self, columns: Sequence[str]) -> str:
        """Return the expression of the first timestamp that is not null."""
        return f"coalesce({', '.join(self.quoted(each) for each in columns)})"

    @abstractmethod
    def now(self) -> Any:
        """Return the time of the database, as `timestamp_of` has it."""

    def parameter(self, value: Any) -> Any:
        """Return a value as the driver takes it."""
        return value

    def stream(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a query whose rows are fetched in parts."""
        return self.run(statement, values)

    def failed_column(self, error: BaseException, table: TableName, row: dict[str, Any]) -> str:
        """Return the column that caused an error, or an empty text."""
        del table
        text = str(error)
        found = [name for name in row if f"'{name}'" in text or f".{name}" in text or f'"{name}"' in text]
        return max(found, key=len, default="")

    def quoted(self, name: str) -> str:
        """Return an identifier in quotes."""
        mark = self.quote_mark
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    def table(self, table: TableName) -> str:
        """Return the name of a table in quotes."""
        return ".".join(self.quoted(each) for each in table if each)

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn a driver's error into RetriableError or ConnectError, without secrets."""
        try:
            yield
        except self.driver_errors as error:
            kind = self.classify(error)
            if not kind:
                raise
            text = f"Could not {what} at {self.address}: {type(error).__name__}: {error}"
            raise (RetriableError if kind == "retry" else ConnectError)(text) from error

    def run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement; returns its cursor."""
        cursor = self.connection.cursor()
        cursor.execute(statement, [self.parameter(each) for each in values] if values else ())
        return cursor

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        cursor = self.connection.cursor()
        cursor.executemany(statement, [[self.parameter(each) for each in row] for row in rows])

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Return all rows of a query."""
        return list(self.run(statement, values).fetchall())

    def begin(self) -> None:  # noqa: B027 - most drivers begin a transaction with the first statement
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit the transaction."""
        self.connection.commit()

    def rollback(self) -> None:
        """Undo the transaction. Raises the driver's error if the connection is lost."""
        self.connection.rollback()

    def close(self) -> None:
        """Close the connection; a lost one is closed already."""
        try:
            self.connection.close()
        except self.driver_errors as error:
            if not self.classify(error):
                raise
