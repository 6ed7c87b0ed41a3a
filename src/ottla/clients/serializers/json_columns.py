"""Whole Arrow columns of JSON values with a JSON Schema in a registry, by the kernels of `ottla.serde`. Needs pyarrow.

The reader's schema gives the type of the column (`ottla.serde.json_schema`). Fields that the column does not have are
skipped, and missing ones are null. With `validate`, each value is also checked against its schema, as single values
are; that takes many times as long as decoding alone.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import InvalidValue, array_of, plan_of, rows_of
from ottla.clients.serializers import base
from ottla.clients.serializers.base import References
from ottla.clients.serializers.json_schema import checker, title
from ottla.clients.serializers.registry_columns import NoColumnType, ReadColumn, RegistryColumns
from ottla.clients.serializers.wire import PREFIX_SIZE
from ottla.schemas.model import Schema, SchemaType
from ottla.serde._builders import Plan
from ottla.serde._json import decode
from ottla.serde.json_schema import JsonSchemaError, plan_of_schema


class JsonColumns(RegistryColumns):
    __doc__ = RegistryColumns.__doc__

    type = SchemaType.JSON

    def _record_name(self, schema: Schema) -> str | None:
        return title(schema)

    def _prepare(self, reader: References) -> Plan:
        return layout(reader)

    def _read_written_with(self, writer: References) -> ReadColumn:
        check = None
        if self.settings.values["validate"]:
            reader = self._reader if self.has_given_reader else None
            try:
                check = checker(writer if reader is None else reader)
            except base.InvalidValue as error:
                raise NoColumnType(str(error)) from error

        def read(values: Any) -> tuple[Any, list[InvalidValue]]:
            kind = self.arrow_type
            # binary_slice without an end fails in pyarrow for long columns ("Negative buffer resize").
            texts = pc.binary_replace_slice(values, start=0, stop=PREFIX_SIZE, replacement=b"")
            column, bad = decode(plan_of(kind), rows_of(texts))
            found: list[InvalidValue] = list(bad)
            empty = pc.indices_nonzero(pc.fill_null(pc.equal(pc.binary_length(texts), 0), False))
            found += [(row, "", "has no JSON after its schema id") for row in empty.to_pylist()]
            array = array_of(kind, column)
            if check is None:
                return array, sorted(found)
            refused = _refused(check, texts, {row for row, *_ in found})
            if refused:
                rows = {row for row, *_ in refused}
                array = array.take(pa.array([None if row in rows else row for row in range(len(array))], pa.int64()))
            return array, sorted([*found, *refused])

        return read


def layout(reader: References) -> Plan:
    """Return the layout of a column of values of a JSON Schema. Raises NoColumnType."""
    try:
        documents = {name: json.loads(each.text) for name, each in reader.referenced.items()}
        return plan_of_schema(json.loads(reader.schema.text), documents)
    except (JsonSchemaError, ValueError, RecursionError) as error:
        raise NoColumnType(str(error)) from error


def _refused(check: Any, texts: Any, known: set[int]) -> list[InvalidValue]:
    """Return the rows that the schema refuses, besides those that are known."""
    bad: list[InvalidValue] = []
    for row, text in enumerate(texts.to_pylist()):
        if text is None or row in known:
            continue
        try:
            check(json.loads(text))
        except base.InvalidValue as error:
            bad.append((row, error.field, str(error)))
    return bad
