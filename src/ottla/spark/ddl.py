"""Parses Spark's types from text without pyspark: `a INT, b ARRAY<STRUCT<c: STRING>>`, or a StructType as JSON.

Spark plans a data source in a Python process without a session, where Spark's own parser is not available; and lookups
of tables need no Spark. A parsed type has the form of Spark's JSON: `"long"`, or a dictionary with `type`. pyspark is
imported only by the functions that return its types.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.common.units import whole_number

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

JsonType: TypeAlias = str | dict[str, Any]
"""A type as Spark writes it in JSON."""

_TYPES: Final = {
    "boolean": "boolean", "tinyint": "byte", "byte": "byte", "smallint": "short", "short": "short", "int": "integer",
    "integer": "integer", "bigint": "long", "long": "long", "float": "float", "real": "float", "double": "double",
    "date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz",
    "string": "string", "binary": "binary", "decimal": "decimal(10,0)", "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
}  # fmt: skip
_SHORT: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_TOKEN: Final = re.compile(r"""\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([<>(),:]))""")


class SchemaError(ValueError):
    """A schema cannot be parsed; the message contains the position."""


def parse(text: str) -> JsonType:
    """Parse a schema in DDL or JSON; a list of columns is a struct. Raises SchemaError."""
    if text.lstrip().startswith(("{", '"')):
        try:
            given = json.loads(text)
            if isinstance(given, dict) and given.get("type") != "struct":
                raise SchemaError('it must have "type": "struct"')
            return _checked(given)
        except KeyError as error:
            raise SchemaError(f"is not a Spark type in JSON: a type has no {error}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"is not a Spark type in JSON: {error}") from error
    return _Parser(text).whole()


def data_type(kind: JsonType) -> DataType:
    """Return the pyspark type. Raises pyspark's exception for a type that it does not have."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(struct_of([field_of("value", kind)])).fields[0].dataType


def nullable(kind: JsonType) -> JsonType:
    """Return the type with all fields nullable: the records of a topic need not match a schema."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{**each, "type": nullable(each["type"]), "nullable": True} for each in kind["fields"]]
        return {**kind, "fields": fields}
    if kind["type"] == "array":
        return {**kind, "elementType": nullable(kind["elementType"]), "containsNull": True}
    return {**kind, "valueType": nullable(kind["valueType"]), "valueContainsNull": True}


def simple(kind: JsonType) -> str:
    """Return a type in few words, as pyspark's `simpleString` does."""
    if isinstance(kind, str):
        return _SHORT.get(kind, kind)
    if kind["type"] == "struct":
        fields = ",".join(f"{each['name']}:{simple(each['type'])}" for each in kind["fields"])
        return f"struct<{fields}>"
    if kind["type"] == "array":
        return f"array<{simple(kind['elementType'])}>"
    return f"map<{simple(kind['keyType'])},{simple(kind['valueType'])}>"


def struct_of(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a struct with these fields."""
    return {"type": "struct", "fields": fields}


def field_of(name: str, kind: JsonType, is_nullable: bool = True) -> dict[str, Any]:
    """Return a field of a struct."""
    return {"name": name, "type": kind, "nullable": is_nullable, "metadata": {}}


def is_struct(kind: JsonType) -> bool:
    """Whether a type is a struct."""
    return isinstance(kind, dict) and kind["type"] == "struct"


def _checked(given: Any) -> JsonType:
    """Return a type in JSON that is complete. Raises SchemaError, KeyError, TypeError."""
    if isinstance(given, str):
        return _Parser(given).whole()
    kind = given["type"]
    if kind == "struct":
        return struct_of(
            [
                {
                    **field_of(str(each["name"]), _checked(each["type"]), bool(each.get("nullable", True))),
                    "metadata": each.get("metadata") or {},
                }
                for each in given["fields"]
            ]
        )
    if kind == "array":
        return _array(_checked(given["elementType"]), bool(given.get("containsNull", True)))
    if kind == "map":
        values_may_be_null = bool(given.get("valueContainsNull", True))
        return _map(_checked(given["keyType"]), _checked(given["valueType"]), values_may_be_null)
    raise SchemaError(f"there is no type {kind!r}")


def _array(element: JsonType, contains_null: bool = True) -> JsonType:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def _map(key: JsonType, value: JsonType, contains_null: bool = True) -> JsonType:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}


class _Parser:
    """A recursive descent parser of DDL."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise SchemaError(f"cannot be parsed at {text[position : position + 20]!r}")
            self._tokens.append(found.group().strip())
            position = found.end()
        self._at = 0

    def whole(self) -> JsonType:
        """Parse the whole text: a type, or columns."""
        is_type = len(self._tokens) == 1 or self._tokens[1:2] in (["<"], ["("])
        parsed = self._type() if is_type else struct_of(self._columns(end=""))
        if self._at < len(self._tokens):
            raise self._odd()
        return parsed

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise SchemaError("ends too early")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._odd(f", expected {token!r}")
        self._at += 1

    def _odd(self, more: str = "") -> SchemaError:
        what = f"has {self._peek()!r}" if self._peek() else "ends too early"
        before = " ".join(self._tokens[max(0, self._at - 3) : self._at])
        return SchemaError(f"{what} after {before!r}{more}")

    def _columns(self, end: str) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._next()
            if not re.match(r"[\w`]", name):
                self._at -= 1
                raise self._odd(", expected a column's name")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._at += 1
            kind = self._type()
            is_nullable = True
            if self._peek().lower() == "not":
                self._at += 1
                if self._next().lower() != "null":
                    self._at -= 1
                    raise self._odd(", expected NULL")
                is_nullable = False
            if self._peek().lower() == "comment":
                self._at += 1
                if not self._next().startswith(("'", '"')):
                    self._at -= 1
                    raise self._odd(", expected a text in quotes")
            if any(field["name"] == name for field in fields):
                raise SchemaError(f"has the column {name!r} twice")
            fields.append(field_of(name, kind, is_nullable))
        if not fields:
            raise SchemaError("has no columns")
        return fields

    def _type(self) -> JsonType:
        name = self._next().lower()
        if name in ("array", "map", "struct"):
            self._expect("<")
            kind: JsonType
            if name == "struct":
                kind = struct_of(self._columns(end=">"))
            elif name == "array":
                kind = _array(self._type())
            else:
                key = self._type()
                self._expect(",")
                kind = _map(key, self._type())
            self._expect(">")
            return kind
        arguments = self._arguments() if self._peek() == "(" else []
        if name in ("decimal", "dec", "numeric") and len(arguments) in (1, 2):
            return f"decimal({arguments[0]},{arguments[1] if len(arguments) == 2 else 0})"
        if name in ("char", "varchar", "character"):
            return "string"
        if name not in _TYPES or arguments:
            self._at -= 1
            raise SchemaError(f"has the unknown type {name!r}; the types are {', '.join(_TYPES)}, array, map, struct")
        return _TYPES[name]

    def _arguments(self) -> list[int]:
        self._expect("(")
        numbers = [self._number()]
        while self._peek() == ",":
            self._at += 1
            numbers.append(self._number())
        self._expect(")")
        return numbers

    def _number(self) -> int:
        token = self._next()
        number = whole_number(token)
        if number is None:
            self._at -= 1
            raise self._odd(", expected a number")
        return number
