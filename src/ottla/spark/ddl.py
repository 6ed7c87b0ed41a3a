"""Parses Spark's types from text without the JVM: `a INT, b ARRAY<STRUCT<c: STRING>>`, or a StructType as JSON.

Spark plans a data source in a Python process without a session, where Spark's own parser is not available.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.common.units import whole_number

_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(), "tinyint": ByteType(), "byte": ByteType(), "smallint": ShortType(), "short": ShortType(),
    "int": IntegerType(), "integer": IntegerType(), "bigint": LongType(), "long": LongType(), "float": FloatType(),
    "real": FloatType(), "double": DoubleType(), "date": DateType(), "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(), "timestamp_ntz": TimestampNTZType(), "string": StringType(),
    "binary": BinaryType(), "decimal": DecimalType(10, 0), "dec": DecimalType(10, 0), "numeric": DecimalType(10, 0),
}  # fmt: skip
_TOKEN: Final = re.compile(r"""\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(\w+)|([<>(),:]))""")


class SchemaError(ValueError):
    """A schema cannot be parsed; the message contains the position."""


def parse_schema(text: str) -> DataType:
    """Parse a schema in DDL or JSON; a list of columns is a StructType. Raises SchemaError."""
    if text.lstrip().startswith(("{", '"')):
        try:
            return _from_json(text)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise SchemaError(f"is not a Spark type in JSON: {error}") from error
    return _Parser(text).whole()


def nullable(kind: DataType) -> DataType:
    """Return the type with all fields nullable: the records of a topic need not match a schema."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    return kind


def _from_json(text: str) -> DataType:
    parsed = json.loads(text)
    if isinstance(parsed, dict) and parsed.get("type") == "struct":
        return StructType.fromJson(parsed)
    if isinstance(parsed, str):
        return _Parser(parsed).whole()
    raise ValueError('it must have "type": "struct"')


class _Parser:
    """A recursive descent parser of DDL."""

    def __init__(self, text: str) -> None:
        self._text = text
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

    def whole(self) -> DataType:
        """Parse the whole text: a type, or columns."""
        is_type = len(self._tokens) == 1 or self._tokens[1:2] in (["<"], ["("])
        parsed = self._type() if is_type else StructType(self._columns(end=""))
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

    def _columns(self, end: str) -> list[StructField]:
        fields: list[StructField] = []
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
            nullable = True
            if self._peek().lower() == "not":
                self._at += 1
                if self._next().lower() != "null":
                    self._at -= 1
                    raise self._odd(", expected NULL")
                nullable = False
            if self._peek().lower() == "comment":
                self._at += 1
                if not self._next().startswith(("'", '"')):
                    self._at -= 1
                    raise self._odd(", expected a text in quotes")
            if any(field.name == name for field in fields):
                raise SchemaError(f"has the column {name!r} twice")
            fields.append(StructField(name, kind, nullable))
        if not fields:
            raise SchemaError("has no columns")
        return fields

    def _type(self) -> DataType:
        name = self._next().lower()
        if name in ("array", "map", "struct"):
            self._expect("<")
            kind: DataType
            if name == "struct":
                kind = StructType(self._columns(end=">"))
            elif name == "array":
                kind = ArrayType(self._type())
            else:
                key = self._type()
                self._expect(",")
                kind = MapType(key, self._type())
            self._expect(">")
            return kind
        arguments = self._arguments() if self._peek() == "(" else []
        if name in ("decimal", "dec", "numeric") and len(arguments) in (1, 2):
            return DecimalType(*arguments) if len(arguments) == 2 else DecimalType(arguments[0], 0)
        if name in ("char", "varchar", "character"):
            return StringType()
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
