"""Schemas in DDL: the parser accepts what it prints, and names the place of an error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.ddl import SchemaError, data_type, nullable, parse

SIMPLE = st.sampled_from(
    [BinaryType(), BooleanType(), DateType(), DecimalType(12, 3), DoubleType(), IntegerType(), LongType(),
     StringType(), TimestampNTZType(), TimestampType()]
)  # fmt: skip
NAMES = st.text("abz_0`: ,<>", min_size=1, max_size=4)


def structs(kinds: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(StructField, NAMES, kinds, st.booleans())
    return st.lists(fields, min_size=1, max_size=3, unique_by=lambda field: field.name).map(StructType)


KINDS: st.SearchStrategy[DataType] = st.recursive(
    SIMPLE, lambda each: st.builds(ArrayType, each) | st.builds(MapType, SIMPLE, each) | structs(each), max_leaves=6
)


def ddl(kind: DataType) -> str:
    """Write a type as a person would, with every name quoted."""
    if isinstance(kind, StructType):
        return f"STRUCT<{columns(kind, ':')}>"
    if isinstance(kind, ArrayType):
        return f"Array < {ddl(kind.elementType)} >"
    if isinstance(kind, MapType):
        return f"map<{ddl(kind.keyType)},{ddl(kind.valueType)}>"
    return kind.simpleString()


def columns(kind: StructType, colon: str = "") -> str:
    return ", ".join(
        f"`{field.name.replace('`', '``')}`{colon} {ddl(field.dataType)}{'' if field.nullable else ' not NULL'}"
        for field in kind.fields
    )


@settings(max_examples=25)
@given(structs(KINDS))
def test_columns_are_parsed_as_they_were_written(kind: StructType) -> None:
    assert data_type(parse(columns(kind))) == kind
    assert data_type(parse(ddl(kind))) == kind
    assert data_type(parse(kind.json())) == kind


@settings(max_examples=20)
@given(KINDS)
def test_nullable_type_has_the_same_columns_and_requires_none(kind: DataType) -> None:
    found = data_type(nullable(kind.jsonValue()))
    assert found.simpleString() == kind.simpleString()
    assert "NOT NULL" not in found.simpleString().upper()
    assert '"nullable":false' not in found.json()
    assert nullable(found.jsonValue()) == found.jsonValue()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no columns"),
        ("a", "unknown type 'a'"),
        ("a INT b INT", "has 'b' after 'a INT', expected ','"),
        ("a INT,", "ends too early"),
        ("a INT, , b INT", "expected a column's name"),
        ("a INT, A INT, a STRING", "has the column 'a' twice"),
        ("a ARRAY INT", "expected '<'"),
        ("a MAP<STRING>", "expected ','"),
        ("a STRUCT<>", "has no columns"),
        ("a STRUCT<b: INT", "ends too early"),
        ("a INT>", "has '>'"),
        ("INT> x", "unknown type '>'"),
        ("a INT NOT", "ends too early"),
        ("a INT NOT nil", "has 'nil' after 'a INT NOT', expected NULL"),
        ("a DECIMAL(5", "ends too early"),
        ("a DECIMAL(five)", "expected a number"),
        ("a INT(5)", "unknown type 'int'"),
        ("a INT; b INT", "cannot be parsed at '; b INT'"),
        ("a INT COMMENT", "ends too early"),
        ("a INT COMMENT b", "expected a text in quotes"),
        ('a INT COMMENT "b', "cannot be parsed at"),
        ("a DECIMAL(" + "9" * 5000 + ")", "expected a number"),
        ("a INT COMMENT, b INT", "expected a text in quotes"),
        ('{"type": "array"}', "is not a Spark type in JSON"),
        ('{"type": "struct"}', "is not a Spark type in JSON"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "is not a Spark type in JSON"),
        ('"integr"', "is not a Spark type in JSON"),
        ('{"type"', "is not a Spark type in JSON"),
    ],
)
def test_error_in_a_schema_is_named(text: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        data_type(parse(text))
    assert problem in str(caught.value)


def test_comments_are_ignored() -> None:
    wanted = StructType([StructField("a", IntegerType()), StructField("comment", StringType(), nullable=False)])
    assert data_type(parse("a INT COMMENT 'b INT, it\\'s', comment STRING NOT NULL COMMENT ''")) == wanted
    assert data_type(parse('a INT COMMENT "b INT, it\'s \\"it\\"", comment STRING NOT NULL COMMENT ""')) == wanted
