"""Whole Arrow columns of Avro values with the compiled kernels of `ottla.serde`. Needs pyarrow."""

from __future__ import annotations

from typing import Any

from ottla.clients.arrow_columns import InvalidValue, array_of, rows_of
from ottla.clients.serializers.base import References
from ottla.clients.serializers.registry_columns import NoColumnType, ReadColumn, RegistryColumns
from ottla.clients.serializers.subjects import avro_record_name
from ottla.clients.serializers.wire import PREFIX_SIZE
from ottla.schemas.model import Schema, SchemaType
from ottla.serde._builders import Plan
from ottla.serde.avro import AvroDecoder, plan
from ottla.serde.avro_schema import AvroSchemaError, Node, parse


class AvroColumns(RegistryColumns):
    __doc__ = RegistryColumns.__doc__

    type = SchemaType.AVRO
    _node: Node

    def _record_name(self, schema: Schema) -> str | None:
        return avro_record_name(schema)

    def _prepare(self, reader: References) -> Plan:
        try:
            self._node = _parsed(reader)
            return plan(self._node)
        except AvroSchemaError as error:
            raise NoColumnType(str(error)) from error

    def _read_written_with(self, writer: References) -> ReadColumn:
        try:
            decoder = AvroDecoder(_parsed(writer), self._node, PREFIX_SIZE)
        except AvroSchemaError as error:
            raise NoColumnType(str(error)) from error

        def read(values: Any) -> tuple[Any, list[InvalidValue]]:
            column, bad = decoder.decode(rows_of(values))
            assert column is not None
            return array_of(self.arrow_type, column), bad

        return read


def _parsed(references: References) -> Node:
    return parse(references.schema.text, [each.text for each in references.referenced.values()])
