"""Numbers and values as Java prints them: `Double.toString`, `Float.toString`, `Object.toString`."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.data import Type
from ottla.connect.errors import DataError

if TYPE_CHECKING:
    from ottla.connect.data import Schema

_LOW, _HIGH = 1e-3, 1e7
_FLOAT: Final = struct.Struct(">f")


def double_text(value: float) -> str:
    """Return a FLOAT64 as Java 19 and newer print it: the shortest decimal that reads as the same number."""
    if _LOW <= abs(value) < _HIGH or value == 0:
        return repr(value)
    if not math.isfinite(value):
        return _special(value)
    mantissa, _, exponent = f"{Decimal(repr(value)):e}".partition("e")
    if len(mantissa.lstrip("-")) == 1:  # Java chooses among two digits then: 4.9E-324, not 5E-324
        mantissa, _, exponent = f"{value:.1e}".partition("e")
    return _scientific(mantissa, exponent)


def float_text(value: float) -> str:
    """Return a FLOAT32 as Java 19 and newer print it. The value is rounded to 32 bits."""
    if not math.isfinite(value):
        return _special(value)
    rounded = single(value)
    if not math.isfinite(rounded):
        return _special(rounded)
    text = next(text for text in (f"{rounded:.{digits}e}" for digits in range(1, 10)) if single(float(text)) == rounded)
    if _LOW <= abs(rounded) < _HIGH or rounded == 0:
        return repr(float(text))
    mantissa, _, exponent = text.partition("e")
    return _scientific(mantissa, exponent)


def single(value: float) -> float:
    """Return the nearest number of 32 bits, infinite if there is none."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _scientific(mantissa: str, exponent: str) -> str:
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}E{int(exponent)}"


def scalar_text(value: Any, schema: Schema | None) -> str | None:
    """Return null, a boolean or a number as text; None for other values."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        is_single = schema is not None and schema.type is Type.FLOAT32
        return float_text(value) if is_single else double_text(value)
    return str(value) if isinstance(value, (int, Decimal)) else None


def object_text(value: Any, schema: Schema | None = None) -> str:
    """Return a value as Java's `toString` of it. Raises DataError for bytes, which Java prints as an address."""
    if isinstance(value, str):
        return value
    text = scalar_text(value, schema)
    if text is not None:
        return text
    if isinstance(value, dict):
        return _struct_text(value, schema) if schema is not None and schema.fields else _map_text(value, schema)
    if isinstance(value, (list, tuple)):
        items = schema.value_schema if schema is not None else None
        return f"[{', '.join(object_text(each, items) for each in value)}]"
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    raise DataError(f"A value of type {type(value).__name__} has no text")


def _struct_text(value: dict[str, Any], schema: Schema) -> str:
    found = ((each, value.get(each.name)) for each in schema.fields)
    return f"Struct{{{','.join(f'{f.name}={object_text(v, f.schema)}' for f, v in found if v is not None)}}}"


def _map_text(value: dict[Any, Any], schema: Schema | None) -> str:
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return f"{{{', '.join(f'{object_text(k, keys)}={object_text(v, values)}' for k, v in value.items())}}}"
