"""Typed key and value columns of reads, for the options key.format and value.format. `writing_formats` has writes.

`column_type` is for planning; `decode` runs in the tasks, on Arrow batches. A value that does not match
its format raises FormatError with field, topic, partition and offset. With mode=PERMISSIVE the value is null. If the
schema has a column `_corrupt_record`, the value is a struct of nulls with its text in that column instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from ottla.clients.arrow_columns import InvalidValue
from ottla.serde._json import Bad
from ottla.spark.avro_values import AvroReader, avro_type
from ottla.spark.ddl import data_type
from ottla.spark.event_times import EventTimes, check_time, event_times
from ottla.spark.format_errors import FormatError as FormatError  # noqa: PLC0414 - re-exported
from ottla.spark.format_errors import place, what
from ottla.spark.json_columns import read_json
from ottla.spark.json_schema import CORRUPT, json_columns
from ottla.spark.options import OptionError, SourceOptions
from ottla.spark.protobuf_values import ProtobufReader, protobuf_type
from ottla.spark.registry import RegistryReader
from ottla.spark.registry_types import registry_type

Part = Literal["key", "value"]
PARTS: Final[tuple[Part, ...]] = ("key", "value")
ERROR: Final = StructType(
    [
        StructField("part", StringType()),
        StructField("message", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
"""The column `error` of a read with includeErrors: the invalid part, the reason, and the record's bytes."""
_OPTIONS_OF: Final = {
    "schema": "json", "avro.schema": "avro", "avro.readerSchema": "avro", "avro.header": "avro",
    "protobuf.message": "protobuf", "protobuf.descriptors": "protobuf", "schemaType": "registry",
    "subject": "registry",
}  # fmt: skip


# -- reading ----------------------------------------------------------------------------------------------------------


def column_type(part: Part, options: SourceOptions) -> DataType:
    """Return the type of the column `key` or `value` of a read. Raises OptionError for an invalid schema."""
    asked = _format_of(part, options)
    refuse_others(part, asked, options.formats)
    kind: DataType = BinaryType()
    if asked == "json":
        kind = data_type(json_columns(part, options.formats))
        _mode(options.formats)
    elif asked == "avro":
        kind = avro_type(part, options.formats, permissive=_mode(options.formats) == "PERMISSIVE")
    elif asked == "registry":
        kind = registry_type(part, options, permissive=_mode(options.formats) == "PERMISSIVE")
    elif asked == "protobuf":
        kind = protobuf_type(part, options.formats)
    if part == "value":
        check_time(kind, options.formats)
    return kind


def decode(batches: Iterator[Any], options: SourceOptions) -> Iterator[Any]:
    """Yield the batches with typed key and value. Raises FormatError."""
    formats = {part: _format_of(part, options) for part in PARTS}
    decoders: list[_Decoder | _TimeCheck] = [
        (_JsonDecoder if kind == "json" else _BinaryDecoder)(part, options)
        for part, kind in formats.items()
        if kind != "raw"
    ]
    times = event_times(options.formats)
    if times is not None:
        decoders.append(_TimeCheck(times, _mode(options.formats) == "PERMISSIVE"))
    for batch in batches:
        typed, bad = batch, []
        for decoder in decoders:
            typed, found = decoder.decode(typed)
            bad += [(decoder.part, *each) for each in found]
        yield _with_errors(typed, batch, bad) if options.include_errors else typed


def _format_of(part: Part, options: SourceOptions) -> str:
    return options.key_format if part == "key" else options.value_format


def _with_errors(typed: Any, batch: Any, bad: Sequence[tuple[Part, int, str, str]]) -> Any:
    """Append the column `error`. If key and value are invalid, it has the key's reason."""
    errors: dict[int, dict[str, object]] = {}
    for part, row, path, problem in bad:
        message = f"{what(part, path)} {problem}"
        record: dict[str, object] = {str(name): batch.column(name)[row].as_py() for name in PARTS}
        errors.setdefault(row, {"part": part, "message": message, **record})
    column = pa.array([errors.get(row) for row in range(len(batch))], to_arrow_type(ERROR))
    return typed.append_column(pa.field("error", column.type), column)


class _Decoder(ABC):
    """Converts one column of batches to its type."""

    def __init__(self, part: Part, options: SourceOptions) -> None:
        self.part: Part = part
        self._permissive = _mode(options.formats) == "PERMISSIVE"
        self._type = to_arrow_type(column_type(part, options), timezone="UTC")

    def decode(self, batch: Any) -> tuple[Any, Sequence[InvalidValue]]:
        """Return the batch with this column converted; and row, field and reason of each invalid value.

        Raises FormatError.
        """
        index = batch.schema.get_field_index(self.part)
        column, bad = self._read(batch.column(index))
        if bad and not self._permissive:
            raise _error(self.part, batch, *bad[0])
        return batch.set_column(index, pa.field(self.part, self._type), column), bad

    @abstractmethod
    def _read(self, values: Any) -> tuple[Any, Sequence[InvalidValue]]:
        """Return the typed column; and row, field and reason of each invalid value, or of the first one only."""


class _JsonDecoder(_Decoder):
    """Decodes JSON values, with a column for the texts of invalid values if the schema has one."""

    def __init__(self, part: Part, options: SourceOptions) -> None:
        super().__init__(part, options)
        self._corrupt = next((i for i, field in enumerate(self._type) if field.name == CORRUPT), None)
        self._read_type = pa.struct([field for field in self._type if field.name != CORRUPT])

    def _read(self, values: Any) -> tuple[Any, Sequence[Bad]]:
        column, bad = read_json(values, self._read_type, only_first=not self._permissive)
        if self._corrupt is None or (bad and not self._permissive):
            return column, bad
        return self._with_texts(self._corrupt, column, values, bad), bad

    def _with_texts(self, index: int, column: Any, values: Any, bad: Sequence[Bad]) -> Any:
        corrupt, is_null = pa.nulls(len(values), pa.string()), column.is_null()
        if bad:
            texts = {each.row: values[each.row].as_py().decode("utf-8", "replace") for each in bad}
            corrupt = pa.array([texts.get(row) for row in range(len(values))], pa.string())
            is_null = pc.and_(is_null, corrupt.is_null())
        children = list(column.flatten())
        children.insert(index, corrupt)
        return pa.StructArray.from_arrays(children, fields=list(self._type), mask=is_null)


class Reader(Protocol):
    """Reads the binary values of a column."""

    def read(self, values: Any, only_first: bool) -> tuple[Any, list[InvalidValue]]:
        """Return the typed column, and row, field and reason of each invalid value."""
        ...


class _BinaryDecoder(_Decoder):
    """Decodes Avro or Protobuf values. There is no column for invalid values, because they have no text."""

    def __init__(self, part: Part, options: SourceOptions) -> None:
        super().__init__(part, options)
        asked = _format_of(part, options)
        self._reader: Reader
        if asked == "registry":
            self._reader = RegistryReader(part, options, self._type)
        else:
            kind = AvroReader if asked == "avro" else ProtobufReader
            self._reader = kind(part, options.formats, self._type)

    def _read(self, values: Any) -> tuple[Any, Sequence[InvalidValue]]:
        return self._reader.read(values, not self._permissive)


class _TimeCheck:
    """Rejects decoded values whose event time is missing, or too far in the future."""

    part: Part = "value"

    def __init__(self, times: EventTimes, permissive: bool) -> None:
        self._times = times
        self._permissive = permissive

    def decode(self, batch: Any) -> tuple[Any, Sequence[InvalidValue]]:
        """Return the batch without such values; and row, field and reason of each. Raises FormatError."""
        values = batch.column("value")
        bad = self._times.find(values, batch.column("timestamp"))
        if not bad:
            return batch, bad
        if not self._permissive:
            raise _error(self.part, batch, *bad[0])
        rows = {row for row, _, _ in bad}
        is_good = pa.array([row not in rows for row in range(len(batch))])
        valid = pc.and_(is_good, values.is_valid())
        cleared = pa.StructArray.from_arrays(values.flatten(), fields=list(values.type), mask=pc.invert(valid))
        index = batch.schema.get_field_index("value")
        return batch.set_column(index, batch.schema.field(index), cleared), bad


def _error(part: Part, batch: Any, row: int, path: str, problem: str) -> FormatError:
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    return FormatError(
        f"{place(topic, partition, offset)}: {what(part, path)} {problem}\n"
        "The option mode=PERMISSIVE makes such values null"
    )


def _mode(formats: Mapping[str, str]) -> str:
    mode = formats.get("mode", "FAILFAST").strip().upper()
    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise OptionError(f"mode is {mode!r}; it must be FAILFAST (the default) or PERMISSIVE")
    return mode


def refuse_others(part: Part, asked: str, formats: Mapping[str, str]) -> None:
    """Reject options of another format: they would have no effect."""
    for name, of in _OPTIONS_OF.items():
        of_registry = asked == "registry" and of != "json"
        if f"{part}.{name.lower()}" in formats and of != asked and not of_registry:
            raise OptionError(f"{part}.{name} is given, but {part}.format is {asked}; did you mean {part}.format={of}?")
