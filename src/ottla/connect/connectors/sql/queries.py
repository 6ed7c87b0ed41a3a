"""Reads new rows of one table or query: the condition of each mode, and exact offsets.

In mode `timestamp` a batch never ends between rows of one timestamp, since an offset names no row within it. The other
modes have a total order, so that each row is an offset.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ottla.connect.connectors.sql.columns import Column, RowShape, as_datetime
from ottla.connect.connectors.sql.database import Database, TableName
from ottla.connect.errors import BadRequestError, ConnectError
from ottla.connect.records import Position, SourceRecord

EPOCH: Final = datetime.fromtimestamp(0, UTC)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class Mode:
    """How new rows are found."""

    name: str
    incrementing: str = ""
    timestamps: tuple[str, ...] = ()
    delay: timedelta = timedelta(0)
    most: int = 100
    strict: bool = True
    initial: datetime | None = None

    @property
    def is_bulk(self) -> bool:
        """Whether each read returns all rows."""
        return self.name == "bulk"

    @property
    def has_number(self) -> bool:
        """Whether rows are found by a number that grows."""
        return "incrementing" in self.name

    @property
    def has_time(self) -> bool:
        """Whether rows are found by a timestamp."""
        return "timestamp" in self.name


@dataclass(frozen=True)
class Place:
    """The last row that was read."""

    time: datetime | None = None
    number: int | None = None

    @classmethod
    def of(cls, offset: Position | None) -> Place:
        """Read an offset, also one of Confluent's connector. Raises BadRequestError."""
        if not offset:
            return cls()
        ms, nanos, number = (offset.get(each) for each in ("timestamp", "timestamp_nanos", "incrementing"))
        for each in (ms, nanos, number):
            if each is not None and (not isinstance(each, int) or isinstance(each, bool)):
                raise BadRequestError(f"{dict(offset)!r} is not an offset of this connector: {each!r} is not a number.")
        if ms is None:
            return cls(None, number)
        micros = ms % 1000 * 1000 if nanos is None else nanos // 1000
        return cls(EPOCH + timedelta(seconds=ms // 1000, microseconds=micros), number)

    def offset(self) -> Position | None:
        """Return the offset of this place."""
        found: dict[str, Any] = {}
        if self.time is not None:
            seconds, rest = divmod(self.time - EPOCH, _SECOND)
            found = {
                "timestamp": seconds * 1000 + rest.microseconds // 1000,
                "timestamp_nanos": rest.microseconds * 1000,
            }
        if self.number is not None:
            found["incrementing"] = self.number
        return found or None


class TableReader:
    """Reads one table, or one query if `table` is None."""

    def __init__(
        self, database: Database, mode: Mode, table: TableName | None, query: str, topic: str, offset: Position | None
    ) -> None:
        self.topic, self.due = topic, 0.0
        self.partition = partition_of(database, table)
        self._database, self._mode, self._table = database, mode, table
        self._place = Place.of(offset)
        if self._place.time is None and mode.initial is not None:
            self._place = Place(mode.initial, self._place.number)
        self._from = database.table(table) if table is not None else f"({query.strip().rstrip(';')}) ottla_query"
        self._shape: RowShape | None = None
        self._number = mode.incrementing
        self._cursor: Any = None

    def read(self) -> tuple[list[SourceRecord], bool]:
        """Return the next records, and whether there may be more at once."""
        if self._mode.is_bulk:
            return self._bulk()
        if self._shape is None:
            self._prepare()
        rows, more = self._times() if self._mode.name == "timestamp" else self._ordered()
        self._database.commit()
        return self._records(rows), more

    def _bulk(self) -> tuple[list[SourceRecord], bool]:
        if self._cursor is None:
            columns = self._catalog()
            self._cursor = self._database.stream(f"select * from {self._from}")
            self._shape = self._shaped(columns, self._cursor)
        rows = self._cursor.fetchmany(self._mode.most)
        if not rows:
            self._cursor.close()
            self._cursor = None
            self._database.commit()
            return [], False
        assert self._shape is not None
        value, schema = self._shape.value, self._shape.schema
        found = [SourceRecord(self.topic, None, None, None, schema, value(row)) for row in rows]
        return found, True

    def close(self) -> None:
        """Close the cursor of a read that has not ended."""
        if self._cursor is not None:
            with self._database.errors(f"close the cursor of {self.topic}"):
                self._cursor.close()
            self._cursor = None

    def _catalog(self) -> list[Column]:
        return [] if self._table is None else self._database.columns(self._table)

    def _shaped(self, columns: Sequence[Column], cursor: Any) -> RowShape:
        """Return the shape of a cursor's rows; the same object while the columns are the same."""
        names = [each[0] for each in cursor.description]
        if self._mode.has_time:
            del names[-1]
        if self._shape is not None and [each.name for each in self._shape.columns] == names:
            return self._shape
        found = list(columns)
        if [each.name for each in found] != names:  # a query, or a column was added after the catalog was read
            found = (
                self._database.query_columns(cursor, self._from)[: len(names)]
                if self._table is None
                else self._catalog()
            )
        name = None if self._table is None else self._table.table
        return RowShape(name, found)

    def _prepare(self) -> None:
        columns = self._catalog()
        if self._table is not None and not columns:
            raise ConnectError(f"Table {self._table} does not exist in {self._database.address}")
        by_name = {each.name: each for each in columns}
        if self._mode.has_number and not self._number:
            keys = [each for each in columns if each.key]
            if len(keys) != 1:
                raise ConnectError(f"{self._table or 'The query'} has no single key: set incrementing.column.name")
            self._number = keys[0].name
        for each in [*([self._number] if self._number else []), *self._mode.timestamps]:
            if not columns:
                break
            if each not in by_name:
                raise ConnectError(f"Table {self._table} has no column {each}")
        if columns and self._mode.strict:
            self._check_null(by_name)

    def _check_null(self, columns: dict[str, Column]) -> None:
        times = [columns[each] for each in self._mode.timestamps]
        nullable = [columns[self._number]] if self._number and columns[self._number].nullable else []
        if times and all(each.nullable for each in times):
            nullable += times
        if nullable:
            raise ConnectError(
                f"Column {nullable[0].name} of table {self._table} may be null, so that rows could be missed: add NOT "
                "NULL, or set validate.non.null=false"
            )

    def _select(self, conditions: Sequence[str], values: Sequence[Any], order: str, limit: int) -> list[Any]:
        where = f" where {' and '.join(conditions)}" if conditions else ""
        extra = f", {self._database.timestamp_of(self._mode.timestamps)} as ottla_time" if self._mode.has_time else ""
        columns = "ottla_source.*"
        text = f"select {columns}{extra} from {self._from_as()}{where} order by {order}"
        cursor = self._database.run(f"{text} limit {limit}" if limit else text, values)
        self._shape = self._shaped(self._shape.columns if self._shape else self._catalog(), cursor)
        return list(cursor.fetchall())

    def _from_as(self) -> str:
        return f"{self._from.removesuffix(' ottla_query')} ottla_source"

    def _ordered(self) -> tuple[list[Any], bool]:
        mode, place, mark = self._mode, self._place, self._database.mark
        number = self._database.quoted(self._number)
        conditions: list[str] = []
        values: list[Any] = []
        order = number
        if mode.has_time:
            time = self._database.timestamp_of(mode.timestamps)
            conditions, values, order = [f"{time} < {mark}"], [self._end()], f"ottla_time, {number}"
            if place.time is not None:
                last = -(1 << 62) if place.number is None else place.number
                conditions.append(f"({time} > {mark} or ({time} = {mark} and {number} > {mark}))")
                values += [place.time, place.time, last]
        elif place.number is not None:
            conditions, values = [f"{number} > {mark}"], [place.number]
        rows = self._select(conditions, values, order, mode.most)
        return rows, len(rows) == mode.most

    def _times(self) -> tuple[list[Any], bool]:
        mode, place, mark = self._mode, self._place, self._database.mark
        time = self._database.timestamp_of(mode.timestamps)
        conditions, values = [f"{time} < {mark}"], [self._end()]
        if place.time is not None:
            conditions.append(f"{time} > {mark}")
            values.append(place.time)
        rows = self._select(conditions, values, "ottla_time", mode.most + 1)
        if len(rows) <= mode.most:
            return rows, False
        last = rows[-1][-1]
        complete = [each for each in rows if each[-1] != last]
        if not complete:  # more rows of one timestamp than a batch has
            complete = self._select([f"{time} = {mark}"], [as_datetime(last)], "ottla_time", 0)
        return complete, True

    def _end(self) -> Any:
        return as_datetime(self._database.now()) - self._mode.delay

    def _records(self, rows: Sequence[Any]) -> list[SourceRecord]:
        if not rows:
            return []
        assert self._shape is not None
        value, schema = self._shape.value, self._shape.schema
        number_of = operator.itemgetter(self._number) if self._mode.has_number else None
        found: list[SourceRecord] = []
        only_time = self._mode.name == "timestamp"
        for index, row in enumerate(rows):
            item = value(row)
            time = as_datetime(row[-1]) if self._mode.has_time else None
            is_last = index + 1 == len(rows) or rows[index + 1][-1] != row[-1]
            if not only_time or is_last:
                self._place = Place(time, int(number_of(item)) if number_of is not None else None)
            offset = self._place.offset()
            found.append(SourceRecord(self.topic, None, None, None, schema, item, None, [], self.partition, offset))
        return found


def partition_of(database: Database, table: TableName | None) -> Position:
    """Return the source partition of a table, with Confluent's names."""
    if table is None:
        return {"query": "query"}
    name = str(table)
    if database.address.dialect == "postgresql":
        name = f"{database.address.database}.{name}"
    return {"protocol": "1", "table": name}
