"""The columns of keys and values in JSON, from the option `value.schema`. Without pyspark and pyarrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.serde._builders import Plan
from ottla.spark.ddl import JsonType, SchemaError, is_struct, nullable, parse, simple
from ottla.spark.names import OptionError

CORRUPT: Final = "_corrupt_record"
"""The column for the texts of invalid values."""
MAX_DIGITS: Final = 38
_PLANS: Final[Mapping[str, Plan]] = {
    "boolean": ("bool",), "byte": ("int8",), "short": ("int16",), "integer": ("int32",), "long": ("int64",),
    "float": ("float32",), "double": ("float64",), "string": ("string",), "binary": ("binary",), "date": ("date32",),
    "timestamp": ("timestamp_us", True), "timestamp_ntz": ("timestamp_us", False),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def json_columns(part: str, formats: Mapping[str, str]) -> dict[str, Any]:
    """Return the struct of a part in JSON; all fields are nullable. Raises OptionError."""
    name = f"{part}.schema"
    text = formats.get(name)
    if text is None:
        raise OptionError(f'{part}.format=json needs {name}, the columns as DDL ("a INT, b STRING") or as JSON')
    try:
        kind = parse(text)
    except SchemaError as error:
        raise OptionError(f"{name} {error}; it is {text!r}") from None
    if not isinstance(kind, dict) or not is_struct(kind):
        raise OptionError(f"{name} is {simple(kind)}; it must be columns or a struct: {part}s are JSON objects")
    _check(kind, name)
    corrupt = next((each["type"] for each in kind["fields"] if each["name"] == CORRUPT), None)
    if corrupt not in (None, "string"):
        raise OptionError(f"{name}: {CORRUPT} must be a STRING, for the text of invalid values")
    if len(kind["fields"]) == (corrupt is not None):
        raise OptionError(f"{name} has no columns")
    found = nullable(kind)
    assert isinstance(found, dict)
    return found


def plan_of_type(kind: JsonType) -> Plan:
    """Return the layout of a column of a type that `json_columns` accepts."""
    if isinstance(kind, str):
        digits = _DECIMAL.fullmatch(kind)
        return _PLANS[kind] if digits is None else ("decimal128", int(digits[1]), int(digits[2]))
    if kind["type"] == "struct":
        return ("struct", tuple((each["name"], plan_of_type(each["type"])) for each in kind["fields"]))
    if kind["type"] == "array":
        return ("list", plan_of_type(kind["elementType"]))
    return ("map", plan_of_type(kind["keyType"]), plan_of_type(kind["valueType"]))


def _check(kind: JsonType, path: str) -> None:
    """Raise OptionError for a type that JSON does not have."""
    if isinstance(kind, str):
        digits = _DECIMAL.fullmatch(kind)
        if digits is None and kind not in _PLANS:
            raise OptionError(f"{path} is {simple(kind)}, which cannot be read")
        if digits is not None and not _is_possible(int(digits[1]), int(digits[2])):
            raise OptionError(
                f"{path} is {kind}; a decimal has 1 to {MAX_DIGITS} digits, and its scale is at most its precision"
            )
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            _check(field["type"], f"{path}: {field['name']}")
    elif kind["type"] == "array":
        _check(kind["elementType"], path)
    else:
        if kind["keyType"] != "string":
            raise OptionError(f"{path} has keys of {simple(kind['keyType'])}; keys of JSON are strings")
        _check(kind["valueType"], path)


def _is_possible(precision: int, scale: int) -> bool:
    return scale <= precision and 1 <= precision <= MAX_DIGITS
