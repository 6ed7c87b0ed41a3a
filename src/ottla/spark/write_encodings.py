"""How a sink encodes key and value columns: the options are read on the driver, the columns encoded in the tasks."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import InvalidValue
from ottla.spark.avro_values import to_avro
from ottla.spark.format_errors import FormatError
from ottla.spark.json_columns import to_json
from ottla.spark.protobuf_messages import message_class
from ottla.spark.protobuf_values import to_protobuf


@dataclass(frozen=True)
class Encoding:
    """How the values of a part are written."""

    part: str
    format: Literal["json", "avro", "protobuf"] = "json"
    schema: str = ""
    """The Avro schema."""
    referenced: tuple[str, ...] = ()
    """The Avro schemas that it refers to."""
    message: str = ""
    descriptors: str = ""
    prefix: bytes = b""
    """Precedes each value: the id of a schema in a registry, and the path of a Protobuf message."""
    check: str = ""
    """The JSON Schema that values must match (`registry.as_text`); empty if columns of their types always do."""

    def encode(self, column: Any) -> Any:
        """Return the values of a column as bytes, null for null. Raises FormatError."""
        bad: InvalidValue | None = None
        if self.format == "avro":
            values, bad = to_avro(column, self.schema, self.referenced)
        elif self.format == "protobuf":
            values, bad = to_protobuf(column, message_class(self.message, self.descriptors))
        else:
            values = to_json(column)
            if self.check:
                bad = _first_refused(values, self.check)
        if bad is not None:
            _, field, problem = bad
            raise FormatError(
                f"A {self.part} cannot be written: its field {field!r} {problem}"
                if field
                else f"A {self.part} {problem}"
            )
        return values if not self.prefix else _with_prefix(values, self.prefix)


@dataclass(frozen=True)
class Encoder:
    """Encodes typed columns to key and value bytes, batch by batch. It is pickled and sent to the workers."""

    encodings: tuple[Encoding, ...]
    fields: tuple[str, ...] = ()
    """The columns that make up the value, if there is no column `value`."""

    def __call__(self, batch: Any) -> Any:
        """Return the batch with encoded columns."""
        for each in self.encodings:
            if each.part == "value" and self.fields:
                columns = [batch.column(name) for name in self.fields]
                column = pa.StructArray.from_arrays(columns, names=list(self.fields))
                batch = batch.append_column("value", each.encode(column))
            else:
                index = batch.schema.get_field_index(each.part)
                batch = batch.set_column(index, each.part, each.encode(batch.column(index)))
        return batch


def _with_prefix(values: Any, prefix: bytes) -> Any:
    """Put the prefix before each value that is not null."""
    return pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), values, pa.scalar(b"", pa.binary()))


def _first_refused(values: Any, check: str) -> InvalidValue | None:
    """Return the first value that a JSON Schema refuses."""
    from ottla.clients.serializers.base import InvalidValue as Refused

    validate = _checker(check)
    for row, text in enumerate(values.to_pylist()):
        try:
            if text is not None:
                validate(json.loads(text))
        except Refused as error:
            return row, error.field, f"does not match its JSON Schema: {error}"
    return None


@functools.lru_cache(maxsize=32)
def _checker(check: str) -> Any:
    from ottla.clients.serializers.json_schema import checker
    from ottla.spark.registry import from_text

    return checker(from_text(check))
