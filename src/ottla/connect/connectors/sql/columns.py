"""Columns of tables as Connect's schemas, and their values as Connect's values.

Differences to Confluent's connector: a numeric column without a scale is a STRING, since no scale would be exact.
Timestamps are in UTC and have milliseconds, as Connect's type has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from ottla.connect import data
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError

Decode = Callable[[Any], Any]
EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Column:
    """A column of a table or of a query. `type` is the name in the database, in lower case, without length."""

    name: str
    type: str
    nullable: bool = True
    scale: int | None = None
    unsigned: bool = False
    key: bool = False
    length: int | None = None
    """Most characters, for texts that have a limit."""
    full_type: str = ""


def _int_schema(kind: Type) -> Schema:
    return Schema(kind)


_PLAIN: Final[dict[str, Type]] = {
    **dict.fromkeys(("int2", "smallint"), Type.INT16),
    **dict.fromkeys(("int4", "mediumint", "int", "year"), Type.INT32),
    **dict.fromkeys(("int8", "bigint", "integer"), Type.INT64),
    "tinyint": Type.INT8,
    **dict.fromkeys(("float4", "float"), Type.FLOAT32),
    **dict.fromkeys(("float8", "double", "double precision", "real"), Type.FLOAT64),
    **dict.fromkeys(("bool", "boolean"), Type.BOOLEAN),
    **dict.fromkeys(
        ("bytea", "blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary", "bit"), Type.BYTES
    ),
}  # fmt: skip
_WIDER: Final = {"tinyint": Type.INT16, "smallint": Type.INT32, "mediumint": Type.INT32, "int": Type.INT64}


def schema_of(column: Column) -> Schema:
    """Return the schema of a column."""
    schema = _schema(column)
    return schema.as_optional() if column.nullable else schema


def _schema(column: Column) -> Schema:
    name = column.type
    if name in ("numeric", "decimal"):
        return data.STRING if column.scale is None else data.decimal(column.scale)
    if name == "date":
        return data.date()
    if name in ("time", "timetz"):
        return data.time_of_day()
    if name in ("timestamp", "timestamptz", "datetime"):
        return data.timestamp()
    if column.unsigned and name == "bigint":
        return data.decimal(0)
    if column.unsigned and name in _WIDER:
        return _int_schema(_WIDER[name])
    return Schema(_PLAIN.get(name, Type.STRING))


def decoder_of(column: Column, schema: Schema) -> Decode:
    """Return the function from a database's value to Connect's value; it raises DataError with the column's name."""
    convert = _decoder(schema)

    def decode(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            raise DataError(
                f"The value {value!r} of column {column.name} is not of type {column.type or 'text'}: {error}"
            ) from error

    return decode


def _decoder(schema: Schema) -> Decode:
    if schema.name == data.DECIMAL:
        exponent = Decimal(1).scaleb(-int(schema.parameters["scale"]))
        return lambda value: _decimal(value, exponent)
    named: dict[str | None, Decode] = {data.DATE: _date, data.TIME: _time, data.TIMESTAMP: as_datetime}
    if schema.name in named:
        return named[schema.name]
    by_type: dict[Type, Decode] = {
        Type.STRING: _text,
        Type.BYTES: _bytes,
        Type.BOOLEAN: bool,
        Type.FLOAT32: float,
        Type.FLOAT64: float,
    }
    return by_type.get(schema.type, _integer)


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise ValueError("not an integer")


def _decimal(value: Any, exponent: Decimal) -> Decimal:
    found = value if isinstance(value, Decimal) else Decimal(str(value))
    scaled = found.quantize(exponent)
    if scaled != found:
        raise ValueError("it has more digits after the point")
    return scaled


def _text(value: Any) -> str:
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode()
    return value if isinstance(value, str) else str(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(str(value)[:10])


def _time(value: Any) -> time:
    if isinstance(value, timedelta):  # MariaDB: from -838 to 838 hours
        if not timedelta(0) <= value < timedelta(days=1):
            raise ValueError("not a time of a day")
        return (EPOCH + value).time()
    return value if isinstance(value, time) else time.fromisoformat(str(value))


def as_datetime(value: Any) -> datetime:
    """Return a timestamp in UTC; numbers are milliseconds since 1970, as Confluent's sink writes them to SQLite."""
    if isinstance(value, int):
        return EPOCH + timedelta(milliseconds=value)
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


class RowShape:
    """The schema of rows, made once for a list of columns, and the function from a row to its value."""

    def __init__(self, name: str | None, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        schemas = [schema_of(each) for each in columns]
        names = [each.name for each in columns]
        self.schema = data.struct([Field(*each) for each in zip(names, schemas, strict=True)], name)
        decoders = [decoder_of(*each) for each in zip(columns, schemas, strict=True)]
        self._parts = list(zip(names, decoders, strict=True))

    def value(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row as a STRUCT; values after the columns are ignored."""
        return {name: decode(value) for (name, decode), value in zip(self._parts, row, strict=False)}
