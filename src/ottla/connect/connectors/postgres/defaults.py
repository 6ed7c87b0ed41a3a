"""Default values of columns, as Debezium reads them from expressions: literals, and fixed values for functions."""

from __future__ import annotations

import re
from typing import Any, Final

from ottla.connect import data
from ottla.connect.connectors.postgres.catalog import PgType
from ottla.connect.connectors.postgres.types import Codec

_LITERAL = re.compile(r"'([^']*(?:''[^']*)*)'")
_FUNCTION = re.compile(r"^[(]?[A-Za-z0-9_.]+\((?:.+(?:, ?.+)*)?\)")
_NOW: Final = frozenset(("current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"))
# The value of a default that a function computes.
_COMPUTED: Final = {
    "bit": "00", "varbit": "0", "bool": "f", "bpchar": "", "varchar": "", "text": "", "numeric": "0.0", "float4": "0.0",
    "float8": "0.0", "int2": "0", "int4": "0", "int8": "0", "json": "{}", "jsonb": "{}", "xml": "",
    "uuid": "00000000-0000-0000-0000-000000000000", "date": "1970-01-01", "time": "00:00:00",
    "timestamp": "1970-01-01 00:00:00", "timestamptz": "1970-01-01 00:00:00+00", "interval": "PT0S",
}  # fmt: skip
_BOOLEANS: Final = {"true": "t", "false": "f"}


def default_of(expression: str | None, found: PgType, codec: Codec) -> Any:
    """Return the default for a schema, or NO_DEFAULT for an expression that is not a plain value of a known type."""
    if expression is None or (found.name not in _COMPUTED and found.kind != "e"):
        return data.NO_DEFAULT
    text = _text(expression.strip(), found)
    if text is None:
        return data.NO_DEFAULT
    try:
        value = codec.parse(_BOOLEANS.get(text.lower(), text) if found.name == "bool" else text)
    except (ValueError, ArithmeticError, IndexError):  # an expression that must be evaluated
        return data.NO_DEFAULT
    if value is None or codec.schema.type is data.Type.STRUCT:
        return data.NO_DEFAULT
    return value


def _text(expression: str, found: PgType) -> str | None:
    if found.kind == "e":
        literal = _LITERAL.match(expression)
        return literal[1].replace("''", "'") if literal and literal.end() < len(expression) else None
    if _FUNCTION.match(expression) or expression.lower() in _NOW:
        return _COMPUTED[found.name]
    if "'" in expression:
        literal = _LITERAL.search(expression)
        text = None if literal is None else literal[1].replace("''", "'")
    else:
        text = None if expression.startswith("NULL::") else expression
    if text is not None and found.name in ("timestamp", "timestamptz") and len(text) == 10:
        text += " 00:00:00"
    return text
