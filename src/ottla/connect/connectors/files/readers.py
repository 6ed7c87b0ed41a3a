"""Readers of one file from a position. A position is the byte after a record, for Parquet the number of rows.

A reader returns records whose end it has seen; the last line waits for its end, unless the file is complete.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from ottla.connect import data
from ottla.connect.connectors.files.storage import Storage
from ottla.connect.data import Schema
from ottla.connect.errors import DataError
from ottla.connect.records import valid_text

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

_CHUNK_BYTES: Final = {False: 1 << 20, True: 8 << 20}
Row = tuple[Any, int]
"""A value, and the position after it."""


class Reader(ABC):
    """Reads one file."""

    schema: Schema | None = None
    encodes = False
    """Whether values are the bytes of text."""

    def __init__(self, storage: Storage, key: str, position: int, values: Mapping[str, Any]) -> None:
        self.storage, self.key, self.position, self._values = storage, key, position, values

    @abstractmethod
    def chunk(self, *, is_complete: bool) -> list[Row]:
        """Return the next rows, none at the end. Raises DataError with the file and the position."""

    def _error(self, position: int, problem: object) -> DataError:
        return DataError(f"{self.storage.root}/{self.key} at {position}: {problem}")


class LineReader(Reader):
    """Lines that end with LF or CR LF, as text or as JSON."""

    def __init__(
        self, storage: Storage, key: str, position: int, values: Mapping[str, Any], *, encodes: bool = False
    ) -> None:
        super().__init__(storage, key, position, values)
        self._is_json = values["format"] == "jsonl"
        self.encodes = encodes and not self._is_json
        self.schema = None if self._is_json else data.STRING
        self._bytes = _CHUNK_BYTES[storage.is_immutable]

    def chunk(self, *, is_complete: bool) -> list[Row]:
        """Read and split."""
        while (found := self._lines(is_complete=is_complete)) is not None:
            rows = self._split(found)
            if rows:
                return rows
        return []

    def _split(self, found: bytes) -> list[Row]:
        start, self.position = self.position, self.position + len(found)
        lines = found.split(b"\n")
        if not lines[-1]:
            lines.pop()
        ends = accumulate((len(each) + 1 for each in lines), initial=start)
        next(ends)
        if self._is_json:
            return list(self._parsed(lines, ends, start))
        if b"\r\n" in found:
            lines = [each.removesuffix(b"\r") for each in lines]
        if self.encodes:
            return self._within(list(zip(valid_text(lines), ends, strict=True)))
        return self._within([(each.decode(errors="replace"), end) for each, end in zip(lines, ends, strict=True)])

    def _within(self, rows: list[Row]) -> list[Row]:
        """Correct the last position if the file ends without a line end."""
        if rows and rows[-1][1] > self.position:
            rows[-1] = (rows[-1][0], self.position)
        return rows

    def _lines(self, *, is_complete: bool) -> bytes | None:
        """Return bytes up to the last line end, or to the end of a complete file."""
        length = self._bytes
        most = self._values["max.line.bytes"]
        while True:
            found = self.storage.read(self.key, self.position, length)
            end = found.rfind(b"\n") + 1
            if end:
                return found[:end]
            if len(found) < length:
                return found if found and is_complete else None
            if length > most:
                raise self._error(self.position, f"a line has more than max.line.bytes={most} bytes")
            length *= 2

    def _parsed(self, lines: list[bytes], ends: Iterator[int], start: int) -> Iterator[Row]:
        import orjson  # noqa: PLC0415 - an optional package

        position = start
        for line, end in zip(lines, ends, strict=False):
            if line and not line.isspace():
                try:
                    yield orjson.loads(line), min(end, self.position)
                except orjson.JSONDecodeError as error:
                    raise self._error(position, f"the line is not JSON: {error}") from error
            position = end


class CsvReader(Reader):
    """CSV with a header; each value is a STRUCT of strings. Quoted fields may have line ends."""

    def __init__(self, storage: Storage, key: str, position: int, values: Mapping[str, Any]) -> None:
        super().__init__(storage, key, position, values)
        self._bytes = _CHUNK_BYTES[storage.is_immutable]
        self._names: list[str] = []

    def chunk(self, *, is_complete: bool) -> list[Row]:
        """Read whole rows; a row whose quotes are open waits for the next chunk."""
        if not self._names and not self._read_header(is_complete=is_complete):
            return []
        length = self._bytes
        while True:
            found = self.storage.read(self.key, self.position, length)
            rows = self._rows(found, is_complete=is_complete and len(found) < length)
            if rows or len(found) < length:
                break
            if length > self._values["max.line.bytes"]:
                raise self._error(self.position, f"a row has more than {length} bytes: is a quote missing?")
            length *= 2
        start = self.position
        named: list[Row] = []
        for cells, end in rows:
            if cells:
                named.append((self._struct(cells, start), end))
            start = end
        self.position = start
        return named if named or not rows else self.chunk(is_complete=is_complete)

    def _read_header(self, *, is_complete: bool) -> bool:
        found = self.storage.read(self.key, 0, self._values["max.line.bytes"])
        header = next(iter(self._rows(found, is_complete=is_complete, start=0, most=1)), None)
        if header is None:
            return False
        names, end = header
        self._names = [each.removeprefix("\ufeff") for each in names]
        if len(set(self._names)) < len(self._names):
            raise self._error(0, f"the header has a name twice: {self._names}")
        self.schema = _csv_schema(tuple(self._names))
        self.position = max(self.position, end)
        return True

    def _struct(self, cells: list[str], position: int) -> dict[str, str]:
        if len(cells) != len(self._names):
            raise self._error(position, f"the row has {len(cells)} fields, but the header has {len(self._names)}")
        return dict(zip(self._names, cells, strict=True))

    def _rows(
        self, found: bytes, *, is_complete: bool, start: int | None = None, most: int = 1 << 62
    ) -> list[tuple[list[str], int]]:
        """Return rows with the positions after them."""
        position = self.position if start is None else start
        whole = found if is_complete else found[: found.rfind(b"\n") + 1]
        read = 0

        def lines() -> Iterator[str]:
            nonlocal read
            for line in io.BytesIO(whole):
                read += len(line)
                yield line.decode(errors="replace")

        rows: list[tuple[list[str], int]] = []
        parser = csv.reader(lines(), delimiter=self._values["csv.delimiter"], strict=True)
        while len(rows) < most:
            try:
                rows.append((next(parser), position + read))
            except StopIteration:
                break
            except csv.Error as error:
                at = rows[-1][1] if rows else position
                if "unexpected end" not in str(error):
                    raise self._error(at, error) from error
                if is_complete:
                    raise self._error(at, "the file ends within quotes") from error
                break
        return rows


@lru_cache(maxsize=256)
def _csv_schema(names: tuple[str, ...]) -> Schema:
    return data.struct(dict.fromkeys(names, data.OPTIONAL_STRING))


class ParquetReader(Reader):
    """Rows of a Parquet file, which is read when its footer is complete."""

    def __init__(self, storage: Storage, key: str, position: int, values: Mapping[str, Any]) -> None:
        super().__init__(storage, key, position, values)
        self._batches: Iterator[Any] | None = None
        self._row = 0

    def chunk(self, *, is_complete: bool) -> list[Row]:
        """Return the rows of the next batch after the position."""
        del is_complete
        if self._batches is None and not self._open():
            return []
        assert self._batches is not None
        for batch in self._batches:
            start, self._row = self._row, self._row + batch.num_rows
            if self._row > self.position:
                rows = batch.slice(self.position - start).to_pylist() if start < self.position else batch.to_pylist()
                first, self.position = self._row - len(rows), self._row
                return [(each, first + number) for number, each in enumerate(rows, 1)]
        return []

    def _open(self) -> bool:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

        entry = self.storage.entry(self.key)
        if entry is None or not entry.size:
            return False
        try:
            file = pq.ParquetFile(pa.PythonFile(_Seekable(self.storage, self.key, entry.size), mode="r"))
            self.schema = _parquet_schema(file.schema_arrow)
        except pa.ArrowInvalid as error:
            if self.storage.is_immutable:
                raise self._error(0, error) from error
            return False  # the file is still being written
        self._batches = file.iter_batches(batch_size=4096)
        return True


class _Seekable(io.RawIOBase):
    """A file of a storage for pyarrow."""

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        super().__init__()
        self._storage, self._key, self._size, self._at = storage, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        found = self._storage.read(self._key, self._at, self._size - self._at if size < 0 else size)
        self._at += len(found)
        return found


def _parquet_schema(schema: pa.Schema) -> Schema:
    return data.struct({each.name: _connect_schema(each.type) for each in schema})


def _connect_schema(kind: pa.DataType) -> Schema:
    """Return the optional schema of an Arrow type. Raises DataError for types that Connect does not have."""
    import pyarrow as pa

    types: Any = pa.types
    if types.is_struct(kind):
        return data.struct({each.name: _connect_schema(each.type) for each in kind}, optional=True)
    if types.is_list(kind) or types.is_large_list(kind):
        return data.array(_connect_schema(kind.value_type), optional=True)
    if types.is_decimal(kind):
        return data.decimal(kind.scale, optional=True)
    for check, schema in _CHECKS:
        if getattr(types, check)(kind):
            return schema
    raise DataError(f"The Parquet type {kind} has no type in Connect")


_CHECKS: Final = (
    ("is_int8", data.OPTIONAL_INT8),
    ("is_int16", data.OPTIONAL_INT16),
    ("is_uint8", data.OPTIONAL_INT16),
    ("is_int32", data.OPTIONAL_INT32),
    ("is_uint16", data.OPTIONAL_INT32),
    ("is_int64", data.OPTIONAL_INT64),
    ("is_uint32", data.OPTIONAL_INT64),
    ("is_float32", data.OPTIONAL_FLOAT32),
    ("is_float64", data.OPTIONAL_FLOAT64),
    ("is_boolean", data.OPTIONAL_BOOLEAN),
    ("is_string", data.OPTIONAL_STRING),
    ("is_large_string", data.OPTIONAL_STRING),
    ("is_binary", data.OPTIONAL_BYTES),
    ("is_large_binary", data.OPTIONAL_BYTES),
    ("is_date", data.date(optional=True)),
    ("is_time", data.time_of_day(optional=True)),
    ("is_timestamp", data.timestamp(optional=True)),
)
_READERS: Final[Mapping[str, Callable[[Storage, str, int, Mapping[str, Any]], Reader]]] = {
    "jsonl": LineReader,
    "csv": CsvReader,
    "parquet": ParquetReader,
}


def reader_of(storage: Storage, key: str, position: int, values: Mapping[str, Any], *, encodes: bool) -> Reader:
    """Return the reader of a file from a position. `encodes`: text may be returned as bytes."""
    if values["format"] == "text":
        return LineReader(storage, key, position, values, encodes=encodes)
    return _READERS[values["format"]](storage, key, position, values)
