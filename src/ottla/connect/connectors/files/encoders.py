"""The contents of one file in memory: JSON lines or Parquet."""

from __future__ import annotations

import gzip
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.arrow import METADATA, Columns, Reject, metadata_of
from ottla.connect.converters import json_encoder
from ottla.connect.converters.json_encoder import Encode, JsonOptions, dumps, dumps_lines
from ottla.connect.data import Schema
from ottla.connect.errors import DataError
from ottla.connect.records import PlainRecords, SinkRecord

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

_ROWS: Final = 4096
_OPTIONS: Final = JsonOptions(numeric_decimals=True)


class Encoder(ABC):
    """The records of one file."""

    size = 0
    """About the number of bytes, before compression."""

    @abstractmethod
    def add(self, record: SinkRecord) -> None:
        """Add a record, or reject it."""

    def add_plain(self, records: PlainRecords) -> bool:
        """Add records that all have values without creating them. False: `add` has to do it."""
        del records
        return False

    @abstractmethod
    def contents(self) -> bytes:
        """Return the whole file; empty bytes if all records were rejected."""


class JsonLines(Encoder):
    """One JSON value in each line."""

    def __init__(self, values: Mapping[str, Any], schema: Schema | None, reject: Reject) -> None:
        self._encode: Encode = json_encoder.compiled(schema, _OPTIONS)
        self._with_metadata: bool = values["include.kafka.metadata"]
        self._compressed = values["compression"] == "gzip"
        self._reject = reject
        self._lines: list[bytes] = []

    def add(self, record: SinkRecord) -> None:
        """Encode a record."""
        try:
            value = self._encode(record.value)
            if self._with_metadata:
                value = (
                    {**value, METADATA: metadata_of(record)}
                    if isinstance(value, dict)
                    else {
                        "value": value,
                        METADATA: metadata_of(record),
                    }
                )
            line = dumps(value)
        except DataError as error:
            place = f"{record.original_topic}-{record.original_partition} offset {record.original_offset}"
            self._reject(record, DataError(f"The record {place} cannot be written as JSON: {error}"))
            return
        self._lines.append(line)
        self.size += len(line) + 1

    def add_plain(self, records: PlainRecords) -> bool:
        """Encode text."""
        if self._with_metadata or not records.is_text:
            return False
        lines = dumps_lines([each.value.decode(errors="replace") for each in records.raw])
        self._lines.append(lines)
        self.size += len(lines) + 1
        return True

    def contents(self) -> bytes:
        """Join the lines; gzip without a time, so that the same records are the same bytes."""
        if not self._lines:
            return b""
        text = b"\n".join([*self._lines, b""])
        return gzip.compress(text, mtime=0) if self._compressed else text


class Parquet(Encoder):
    """Rows of a Parquet file, converted to columns in groups."""

    def __init__(self, values: Mapping[str, Any], schema: Schema | None, reject: Reject) -> None:
        self._columns = Columns(schema, with_metadata=values["include.kafka.metadata"])
        given = values["compression"]
        self._compression = "zstd" if given == "default" else given
        self._reject = reject
        self._with_metadata: bool = values["include.kafka.metadata"]
        self._records: list[SinkRecord] = []
        self._values: list[str | bytes] = []
        self._tables: list[pa.Table] = []

    def add(self, record: SinkRecord) -> None:
        """Add a record; its columns are built with the next group."""
        if self._values:
            self._convert()
        self._records.append(record)
        if len(self._records) >= _ROWS:
            self._convert()

    def add_plain(self, records: PlainRecords) -> bool:
        """Add text or bytes; the column is built with the next group."""
        if self._with_metadata:
            return False
        if self._records:
            self._convert()
        raw = records.raw
        self._values += (each.value.decode(errors="replace") if records.is_text else each.value for each in raw)
        if len(self._values) >= _ROWS:
            self._convert()
        return True

    def _convert(self) -> None:
        records, self._records = self._records, []
        values, self._values = self._values, []
        table = self._columns.table(records, self._reject) if records else None
        for each in (table, self._columns.of_values(values) if values else None):
            if each is not None:
                self._tables.append(each)
                self.size += each.nbytes

    def contents(self) -> bytes:
        """Write the Parquet file into memory."""
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

        self._convert()
        if not self._tables:
            return b""
        buffer = io.BytesIO()
        try:
            table = pa.concat_tables(self._tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"Records of one file have no common type; use a converter with schemas: {error}"
            ) from error
        pq.write_table(table, buffer, compression=self._compression)
        return buffer.getvalue()


def encoder_of(values: Mapping[str, Any], schema: Schema | None, reject: Reject) -> Encoder:
    """Return the encoder of a new file."""
    return (JsonLines if values["format"] == "jsonl" else Parquet)(values, schema, reject)


def suffix_of(values: Mapping[str, Any]) -> str:
    """Return the end of file names."""
    return ".parquet" if values["format"] == "parquet" else ".jsonl.gz" if values["compression"] == "gzip" else ".jsonl"
