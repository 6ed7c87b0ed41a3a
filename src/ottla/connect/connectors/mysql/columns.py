"""Types of MariaDB and MySQL as Debezium's schemas, and values of drivers as Debezium's values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from ottla.connect import data
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError

Convert = Callable[[Any], Any]
EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NAIVE: Final = EPOCH.replace(tzinfo=None)
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_US: Final = timedelta(microseconds=1)
_INTEGERS: Final = {
    "tinyint": (Type.INT16, Type.INT16),
    "smallint": (Type.INT16, Type.INT32),
    "mediumint": (Type.INT32, Type.INT32),
    "int": (Type.INT32, Type.INT64),
    "bigint": (Type.INT64, Type.INT64),
}


@dataclass(frozen=True)
class Column:
    """A column. Equal definitions of catalog and binary log are equal objects."""

    name: str
    kind: str
    nullable: bool
    unsigned: bool = False
    digits: int = 0
    """Digits after the point of a decimal, of the second of a time, or the bits of a BIT."""
    labels: tuple[str, ...] = ()
    precision: int = 0
    """All digits of a decimal."""
    padding: int = 0
    """The length of a BINARY column, whose zeros at the end are not in the log; 0: no padding."""


@dataclass(frozen=True)
class Codec:
    """The schema of a column, and the conversion of its values that are not null."""

    schema: Schema
    convert: Convert
    zero: Any = None
    """The value of a date that is not one (0000-00-00) in a column that may not be null."""


def codec(column: Column, options: Options) -> Codec:
    """Return the codec of a column. Raises DataError for a type without a mapping."""
    found = _codec(column, options)
    if column.nullable:
        found = replace(found, schema=found.schema.as_optional(), zero=None)
    return found


def _codec(column: Column, options: Options) -> Codec:
    kind = column.kind
    if kind in _INTEGERS:
        if kind == "bigint" and column.unsigned and options.text("bigint.unsigned.handling.mode") == "precise":
            return Codec(data.decimal(0), Decimal)
        return Codec(Schema(_INTEGERS[kind][column.unsigned]), _integer)
    if kind == "decimal":
        return _decimal(column, options.text("decimal.handling.mode"))
    if kind in ("float", "double"):
        return Codec(Schema(Type.FLOAT32 if kind == "float" else Type.FLOAT64), float)
    if kind in _TEMPORAL:
        return _temporal(column, connect=options.text("time.precision.mode") == "connect")
    if kind == "bit":
        return _bit(column.digits)
    if kind == "binary":
        return _binary(column.padding, options.text("binary.handling.mode"))
    if kind in ("enum", "set"):
        name = "io.debezium.data.Enum" if kind == "enum" else "io.debezium.data.EnumSet"
        schema = Schema(Type.STRING, name=name, version=1, parameters={"allowed": ",".join(column.labels)})
        return Codec(schema, _text if kind == "enum" else lambda value: _set(value, column.labels))
    if kind == "json":
        return Codec(Schema(Type.STRING, name="io.debezium.data.Json", version=1), _json)
    if kind == "text":
        return Codec(data.STRING, _text)
    raise DataError(f"Column {column.name} has the type {kind}, which has no mapping: add it to column.exclude.list")


def _integer(value: Any) -> int:
    return value - (1 << 64) if value >= 1 << 63 else int(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("its character set cannot be decoded")


def _set(value: Any, labels: tuple[str, ...]) -> str:
    chosen = value if isinstance(value, (set, frozenset)) else set(filter(None, value.split(",")))
    return ",".join(each for each in labels if each in chosen)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(_decoded(value), ensure_ascii=False, separators=(",", ":"))


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_decoded(key): _decoded(each) for key, each in value.items()}
    return [_decoded(each) for each in value] if isinstance(value, list) else value


def _decimal(column: Column, mode: str) -> Codec:
    if mode == "double":
        return Codec(data.FLOAT64, float)
    if mode == "string":
        return Codec(data.STRING, lambda value: format(value, "f"))
    exponent = Decimal(1).scaleb(-column.digits)
    schema = data.decimal(column.digits)
    parameters = {**(schema.parameters or {}), "connect.decimal.precision": str(column.precision)}
    return Codec(replace(schema, parameters=parameters), lambda value: Decimal(value).quantize(exponent))


def _bit(bits: int) -> Codec:
    def number(value: Any) -> int:
        return int(value, 2) if isinstance(value, str) else int.from_bytes(value, "big")

    if bits == 1:
        return Codec(data.BOOLEAN, lambda value: number(value) == 1)
    schema = Schema(Type.BYTES, name="io.debezium.data.Bits", version=1, parameters={"length": str(bits)})
    return Codec(schema, lambda value: number(value).to_bytes((bits + 7) // 8, "little"))


def _binary(padding: int, mode: str) -> Codec:
    def raw(value: Any) -> bytes:
        found = value.encode() if isinstance(value, str) else bytes(value)
        return found.ljust(padding, b"\0")

    if mode == "bytes":
        return Codec(data.BYTES, raw)
    texts: dict[str, Convert] = {
        "base64": lambda value: base64.b64encode(raw(value)).decode(),
        "base64-url-safe": lambda value: base64.urlsafe_b64encode(raw(value)).decode(),
        "hex": lambda value: raw(value).hex(),
    }
    return Codec(data.STRING, texts[mode])


_TEMPORAL: Final = frozenset({"year", "date", "time", "datetime", "timestamp"})


def _debezium(kind: Type, name: str) -> Schema:
    return Schema(kind, name=f"io.debezium.time.{name}", version=1)


def _micros(value: datetime) -> int:
    return (value - _NAIVE) // _US


def _zoned(digits: int) -> Convert:
    def convert(value: datetime) -> str:
        fraction = f".{value.microsecond:06d}"[: 1 + digits] if digits else ""
        return f"{value:%Y-%m-%dT%H:%M:%S}{fraction}Z"

    return convert


def _clock(value: timedelta) -> time:
    if not timedelta(0) <= value < timedelta(days=1):
        raise ValueError("it is not a time of a day, which time.precision.mode=connect needs")
    return (EPOCH + value).time()


def _temporal(column: Column, *, connect: bool) -> Codec:
    kind, digits = column.kind, column.digits
    if kind == "year":
        return Codec(_debezium(Type.INT32, "Year"), int, 0)
    if kind == "timestamp":
        convert = _zoned(digits)
        return Codec(_debezium(Type.STRING, "ZonedTimestamp"), convert, convert(_NAIVE))
    if connect:
        found: dict[str, Codec] = {
            "date": Codec(data.date(), lambda value: value, date(1970, 1, 1)),
            "time": Codec(data.time_of_day(), _clock),
            "datetime": Codec(data.timestamp(), lambda value: value.replace(tzinfo=UTC), EPOCH),
        }
        return found[kind]
    if kind == "date":
        return Codec(_debezium(Type.INT32, "Date"), lambda value: value.toordinal() - _DAY_ZERO, 0)
    if kind == "time":
        return Codec(_debezium(Type.INT64, "MicroTime"), lambda value: value // _US)
    if digits > 3:
        return Codec(_debezium(Type.INT64, "MicroTimestamp"), _micros, 0)
    return Codec(_debezium(Type.INT64, "Timestamp"), lambda value: _micros(value) // 1000, 0)
