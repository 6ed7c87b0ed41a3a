"""PostgreSQL's types as Connect's schemas, with the parser of each type's text: Debezium's mapping, as a table.

`codec` returns None for a type without mapping; its columns have no field, as in Debezium (`include.unknown.datatypes`
emits them as bytes). The texts have the form that `session` sets.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from ottla.connect import data
from ottla.connect.connectors.postgres import literals, temporal
from ottla.connect.connectors.postgres.catalog import PgType, resolved
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.data import Schema, Type


class StaleEnumError(Exception):
    """A label that an enum did not have when its type was read."""


Parse = Callable[[str], Any]
UNBOUNDED_BITS: Final = 2_147_483_647


@dataclass(frozen=True)
class Codec:
    """How values of a type are emitted."""

    schema: Schema
    parse: Parse
    fallback: Any
    """The value of a column that is required, but not known (the old row of a delete)."""
    unavailable: Any = None
    """The placeholder of an unchanged large value."""
    fixed: bool = False
    """Whether the text has all digits of a decimal's scale."""
    plain: str = ""
    """`int`, `str` or `bool` if the conversion is so simple that a compiled encoder writes it in place."""


@dataclass(frozen=True)
class Modes:
    """The settings that choose between mappings."""

    decimal: str
    time: str
    binary: str
    hstore: str
    interval: str
    money_digits: int
    unknown: bool
    placeholder: str

    @classmethod
    def of(cls, options: Options) -> Modes:
        """Return the modes of a configuration."""
        return cls(
            options.text("decimal.handling.mode"),
            options.text("time.precision.mode"),
            options.text("binary.handling.mode"),
            options.text("hstore.handling.mode"),
            options.text("interval.handling.mode"),
            options.number("money.fraction.digits"),
            options.flag("include.unknown.datatypes"),
            options.text("unavailable.value.placeholder"),
        )


def named(kind: Type, name: str, **parameters: str) -> Schema:
    """Return the schema of one of Debezium's semantic types."""
    return Schema(kind, name=name, version=1, parameters=parameters)


DATE: Final = named(Type.INT32, "io.debezium.time.Date")
ISO_DATE: Final = named(Type.STRING, "io.debezium.time.IsoDate")
TIME: Final = named(Type.INT32, "io.debezium.time.Time")
MICRO_TIME: Final = named(Type.INT64, "io.debezium.time.MicroTime")
NANO_TIME: Final = named(Type.INT64, "io.debezium.time.NanoTime")
ISO_TIME: Final = named(Type.STRING, "io.debezium.time.IsoTime")
TIMESTAMP: Final = named(Type.INT64, "io.debezium.time.Timestamp")
MICRO_TIMESTAMP: Final = named(Type.INT64, "io.debezium.time.MicroTimestamp")
NANO_TIMESTAMP: Final = named(Type.INT64, "io.debezium.time.NanoTimestamp")
ISO_TIMESTAMP: Final = named(Type.STRING, "io.debezium.time.IsoTimestamp")
ZONED_TIME: Final = named(Type.STRING, "io.debezium.time.ZonedTime")
ZONED_TIMESTAMP: Final = named(Type.STRING, "io.debezium.time.ZonedTimestamp")
MICRO_DURATION: Final = named(Type.INT64, "io.debezium.time.MicroDuration")
INTERVAL: Final = named(Type.STRING, "io.debezium.time.Interval")
JSON: Final = named(Type.STRING, "io.debezium.data.Json")
VARIABLE: Final = Schema(
    Type.STRUCT,
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
    fields=(data.Field("scale", data.INT32), data.Field("value", data.BYTES)),
)
POINT: Final = Schema(
    Type.STRUCT,
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        data.Field("x", data.FLOAT64),
        data.Field("y", data.FLOAT64),
        data.Field("wkb", data.OPTIONAL_BYTES),
        data.Field("srid", data.OPTIONAL_INT32),
    ),
)


def _is_true(text: str) -> bool:
    return text == "t"


def _float(text: str) -> float:
    return float(text)


def _same(text: str) -> str:
    return text


_SIMPLE: Final[dict[str, Codec]] = {
    "bool": Codec(data.BOOLEAN, _is_true, False, plain="bool"),
    "int2": Codec(data.INT16, int, 0, plain="int"),
    "int4": Codec(data.INT32, int, 0, plain="int"),
    "int8": Codec(data.INT64, int, 0, plain="int"),
    "oid": Codec(data.INT64, int, 0, plain="int"),
    "float4": Codec(data.FLOAT32, _float, 0.0),
    "float8": Codec(data.FLOAT64, _float, 0.0),
    "json": Codec(JSON, _same, "", plain="str"),
    "jsonb": Codec(JSON, _same, "", plain="str"),
    "xml": Codec(named(Type.STRING, "io.debezium.data.Xml"), _same, "", plain="str"),
    "uuid": Codec(named(Type.STRING, "io.debezium.data.Uuid"), _same, "", plain="str"),
    "tsvector": Codec(named(Type.STRING, "io.debezium.data.Tsvector"), _same, "", plain="str"),
    "ltree": Codec(named(Type.STRING, "io.debezium.data.Ltree"), _same, "", plain="str"),
    "point": Codec(POINT, literals.point, literals.point("(0,0)")),
    "timetz": Codec(ZONED_TIME, temporal.iso_zoned_time, "00:00:00Z"),
} | {
    name: Codec(data.STRING, _same, "", plain="str")
    for name in [
        "text",
        "varchar",
        "bpchar",
        "name",
        "char",
        "citext",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "int4range",
        "int8range",
        "numrange",
        "tsrange",
        "tstzrange",
        "daterange",
        "isbn",
    ]
}
# Debezium has no mapping for arrays of these.
_NO_ARRAYS: Final = frozenset(
    ["money", "name", "interval", "varbit", "xml", "point", "refcursor", "bit", "oidvector", "int2vector"]
)


def codec(types: Mapping[int, PgType], oid: int, modifier: int, modes: Modes) -> Codec | None:
    """Return how a column of a type is emitted, or None if its type has no mapping."""
    found, modifier = resolved(types, oid, modifier)
    if found is None:
        return None
    result = _array(types, found, modifier, modes) if found.is_array else _scalar(found, modifier, modes)
    if result is None and modes.unknown:
        result = _binary(modes, lambda text: text.encode())
    if result is not None and result.unavailable is None:
        result = replace(result, unavailable=_unavailable(result.schema, modes))
    return result


def _unavailable(schema: Schema, modes: Modes) -> Any:
    if schema.type is Type.BYTES and schema.name is None:
        return modes.placeholder.encode()
    if schema.type is Type.STRING:
        return modes.placeholder
    if schema.type is Type.MAP:
        return {modes.placeholder: modes.placeholder}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        kind = schema.value_schema.type
        return [0 if kind in (Type.INT16, Type.INT32, Type.INT64) else _unavailable(schema.value_schema, modes)]
    return None


def _array(types: Mapping[int, PgType], found: PgType, modifier: int, modes: Modes) -> Codec | None:
    element, _ = resolved(types, found.element, modifier)
    if element is None or element.name in _NO_ARRAYS:
        return None
    item = codec(types, found.element, modifier, replace(modes, unknown=False))
    if item is None:
        return None
    # Debezium's items of enums are required.
    items = item.schema if element.kind == "e" else item.schema.as_optional()
    parse = item.parse
    return Codec(data.array(items), lambda text: literals.array(text, parse), [])


def _scalar(found: PgType, modifier: int, modes: Modes) -> Codec | None:
    if found.kind == "e":
        schema = named(Type.STRING, "io.debezium.data.Enum", allowed=",".join(found.labels))
        return Codec(schema, _label_of(frozenset(found.labels)), "")
    simple = _SIMPLE.get(found.name)
    if simple is not None:
        return simple
    build = _BUILDERS.get(found.name)
    return None if build is None else build(modifier, modes)


def _label_of(labels: frozenset[str]) -> Parse:
    def label(text: str) -> str:
        if text not in labels:
            raise StaleEnumError(text)
        return text

    return label


def _numeric(modifier: int, modes: Modes) -> Codec:
    if modes.decimal == "string":
        return Codec(data.STRING, _same, "0", plain="str")
    if modes.decimal == "double":
        return Codec(data.FLOAT64, _float, 0.0)
    if modifier < 0:
        return Codec(VARIABLE, literals.variable_decimal, {"scale": 0, "value": b"\0"})
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    schema = data.decimal(scale)
    schema = replace(schema, parameters={**schema.parameters, "connect.decimal.precision": str(precision)})
    return Codec(schema, _finite, Decimal(0).scaleb(-scale), fixed=scale >= 0)


def _finite(text: str) -> Decimal | None:
    number = Decimal(text)
    return number if number.is_finite() else None


def _money(_modifier: int, modes: Modes) -> Codec:
    digits = modes.money_digits
    if modes.decimal == "string":
        return Codec(data.STRING, lambda text: str(literals.money(text, digits)), "0")
    if modes.decimal == "double":
        return Codec(data.FLOAT64, lambda text: float(literals.money(text, digits)), 0.0)
    return Codec(data.decimal(digits), lambda text: literals.money(text, digits), Decimal(0).scaleb(-digits))


def _bytea(_modifier: int, modes: Modes) -> Codec:
    return _binary(modes, lambda text: bytes.fromhex(text[2:]))


def _binary(modes: Modes, raw: Callable[[str], bytes]) -> Codec:
    if modes.binary == "bytes":
        return Codec(data.BYTES, raw, b"")
    encode: Callable[[bytes], str] = {
        "base64": lambda value: base64.b64encode(value).decode(),
        "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
        "hex": bytes.hex,
    }[modes.binary]
    return Codec(data.STRING, lambda text: encode(raw(text)), "", unavailable=encode(modes.placeholder.encode()))


def _bit(modifier: int, _modes: Modes) -> Codec:
    if modifier == 1:
        return Codec(data.BOOLEAN, lambda text: text == "1", False)
    length = modifier if modifier > 0 else UNBOUNDED_BITS
    return Codec(named(Type.BYTES, "io.debezium.data.Bits", length=str(length)), literals.bits, b"")


def _hstore(_modifier: int, modes: Modes) -> Codec:
    if modes.hstore == "map":
        return Codec(data.mapping(data.STRING, data.OPTIONAL_STRING), literals.hstore, {})

    def text_of(text: str) -> str:
        return json.dumps(literals.hstore(text), ensure_ascii=False, separators=(",", ":"))

    placeholder = json.dumps({modes.placeholder: modes.placeholder}, ensure_ascii=False, separators=(",", ":"))
    return Codec(JSON, text_of, "{}", unavailable=placeholder)


def _interval(_modifier: int, modes: Modes) -> Codec:
    if modes.interval == "string":
        return Codec(INTERVAL, temporal.interval_iso, "P0Y0M0DT0H0M0S")
    return Codec(MICRO_DURATION, temporal.interval_micros, 0)


def _date(_modifier: int, modes: Modes) -> Codec:
    if modes.time == "connect":
        return Codec(data.date(), temporal.logical_date, temporal.logical_date("1970-01-01"))
    if modes.time == "isostring":
        return Codec(ISO_DATE, temporal.iso_date, "1970-01-01Z")
    return Codec(DATE, temporal.days, 0)


def _precision(modifier: int) -> int:
    return 6 if modifier < 0 else modifier


def _time(modifier: int, modes: Modes) -> Codec:
    mode = modes.time
    if mode == "connect":
        return Codec(data.time_of_day(), temporal.logical_time, temporal.logical_time("00:00:00"))
    if mode == "isostring":
        return Codec(ISO_TIME, temporal.iso_time, "00:00:00Z")
    if mode == "nanoseconds":
        return Codec(NANO_TIME, lambda text: temporal.micros_of_day(text) * 1000, 0)
    if mode == "adaptive" and _precision(modifier) <= 3:
        return Codec(TIME, lambda text: temporal.micros_of_day(text) // 1000, 0)
    return Codec(MICRO_TIME, temporal.micros_of_day, 0)


def _timestamp(modifier: int, modes: Modes) -> Codec:
    mode, digits = modes.time, _precision(modifier)
    if mode == "connect":
        return Codec(data.timestamp(), temporal.logical_timestamp, temporal.logical_timestamp("1970-01-01 00:00:00"))
    if mode == "isostring":
        return Codec(ISO_TIMESTAMP, lambda text: temporal.iso_stamp(text, digits), "1970-01-01T00:00:00Z")
    if mode == "nanoseconds":
        return Codec(NANO_TIMESTAMP, _nanos, 0)
    if mode.startswith("adaptive") and digits <= 3:
        return Codec(TIMESTAMP, lambda text: temporal.micros(text) // 1000, 0)
    return Codec(MICRO_TIMESTAMP, temporal.micros, 0)


def _nanos(text: str) -> int:
    nanos = temporal.micros(text) * 1000
    if not -(1 << 63) <= nanos < 1 << 63:
        raise ValueError(f"{text!r} does not fit into nanoseconds: use another time.precision.mode")
    return nanos


def _timestamptz(modifier: int, _modes: Modes) -> Codec:
    digits = _precision(modifier)
    return Codec(ZONED_TIMESTAMP, lambda text: temporal.iso_stamp(text, digits), "1970-01-01T00:00:00.000000Z")


_BUILDERS: Final[dict[str, Callable[[int, Modes], Codec]]] = {
    "numeric": _numeric,
    "money": _money,
    "bytea": _bytea,
    "bit": _bit,
    "varbit": _bit,
    "hstore": _hstore,
    "interval": _interval,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
