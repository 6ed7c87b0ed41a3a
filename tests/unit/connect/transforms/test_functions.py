"""Transformations by Python functions and SQL expressions."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.config.definition import SettingError
from ottla.connect.errors import DataError
from ottla.connect.plugins import transformation_class
from ottla.connect.records import SourceRecord
from ottla.connect.transforms.api import Transformation
from ottla.connect.transforms.functions import PythonFunction, Sql

ROW = data.struct({"id": data.INT32, "price": data.decimal(2), "day": data.date(), "tags": data.array(data.STRING)})
VALUE = {"id": 7, "price": Decimal("1.50"), "day": date(2024, 5, 6), "tags": ["a", "b"]}


def record(value: Any, schema: data.Schema | None = None) -> SourceRecord:
    return SourceRecord("orders", 3, data.STRING, "k", schema, value, 1_000)


def made(kind: type[Transformation], **config: str) -> Transformation:
    found = kind()
    found.configure(config)
    return found


def double(given: SourceRecord) -> SourceRecord | None:
    if given.value is None:
        return None
    return replace(given, value=given.value * 2)


def something(given: SourceRecord) -> Any:
    return given.topic


def test_function_changes_or_drops_records() -> None:
    transformation = made(PythonFunction, function=f"{__name__}:double")
    assert transformation.apply(record(4)) == record(8)
    assert transformation.apply(record(None)) is None


def test_errors_of_a_function_are_errors_of_the_record() -> None:
    with pytest.raises(DataError, match=r":double failed: TypeError: .*unsupported operand"):
        made(PythonFunction, function=f"{__name__}:double").apply(record({}))
    with pytest.raises(DataError, match="returned str, not a record or None"):
        made(PythonFunction, function=f"{__name__}:something").apply(record(1))


@pytest.mark.parametrize("name", ["no.module:f", f"{__name__}:absent", f"{__name__}:ROW", "nothing", ""])
def test_function_that_is_absent_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="Invalid value"):
        made(PythonFunction, function=name)


@pytest.mark.parametrize(
    ("select", "where", "expected"),
    [
        ("*", "", VALUE),
        ("id, price", "id > 5", {"id": 7, "price": Decimal("1.50")}),
        ("id AS number, id * 2 AS double, price + 0 AS p", "", {"number": 7, "double": 14, "p": 1.5}),
        ("upper(__topic) AS t, __partition, __key, __timestamp / 1000 AS s", "",
         {"t": "ORDERS", "__partition": 3, "__key": "k", "s": 1}),
        ("json_extract(tags, '$[1]') AS second, strftime('%Y', day) AS year", "", {"second": "b", "year": "2024"}),
        ("*, coalesce(null, 'a,b') AS text", "", {**VALUE, "text": "a,b"}),
        ("id", "id > 7", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("schema", [None, ROW])
def test_sql(select: str, where: str, expected: Any, schema: data.Schema | None) -> None:
    changed = made(Sql, select=select, where=where).apply(record(VALUE, schema))
    assert (None if changed is None else changed.value) == expected
    if changed is not None and schema is not None:
        assert changed.value_schema is not None
        assert [each.name for each in changed.value_schema.fields] == list(changed.value)


def test_copied_fields_keep_their_schemas_and_computed_ones_get_their_first_type() -> None:
    transformation = made(Sql, select="price, nullif(id, 1) AS n")
    first = transformation.apply(record({**VALUE, "id": 1}, ROW))
    second = transformation.apply(record(VALUE, ROW))
    third = transformation.apply(record({**VALUE, "id": 1}, ROW))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.value_schema == data.struct({"price": data.decimal(2), "n": data.OPTIONAL_STRING})
    assert second.value_schema == data.struct({"price": data.decimal(2), "n": data.OPTIONAL_INT64})
    assert third.value_schema is second.value_schema


@pytest.mark.parametrize(
    "select",
    [
        "id FROM x; DROP TABLE y",
        "(",
        "load_extension('x')",
        "id, (SELECT count(*) FROM pragma_database_list) AS n",
        "'a';",
    ],
)
def test_other_statements_than_expressions_are_refused(select: str) -> None:
    with pytest.raises((SettingError, DataError)):
        made(Sql, select=select).apply(record({"id": 1}))


def test_unknown_column_names_the_fields() -> None:
    with pytest.raises(DataError, match="does not fit the fields id: no such column: price"):
        made(Sql, select="price").apply(record({"id": 1}))


def test_recursion_is_refused() -> None:
    endless = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)"
    with pytest.raises(SettingError, match="not authorized"):
        made(Sql, select=f"{endless} AS x")


def test_long_expression_is_interrupted() -> None:
    # It ends after some ten seconds: a test without an end passes when its time limit interrupts the expression.
    rows = "(VALUES " + ", ".join(f"({number})" for number in range(170)) + ")"
    transformation = made(Sql, select=f"(SELECT count(*) FROM {', '.join([rows] * 4)} WHERE random() < id) AS x")
    with pytest.raises(DataError, match="it took more than 1 s"):
        transformation.apply(record({"id": 50}))


def test_record_without_value_goes_on() -> None:
    assert made(Sql, where="id > 1").apply(record(None)) == record(None)


@pytest.mark.parametrize("name", ["Sql", "PythonFunction"])
def test_short_names(name: str) -> None:
    assert transformation_class(name).__name__ == name
