"""Columns of JSON texts into typed columns, and back. Rows stay where they are, whatever their bytes hold.

A batch is one text for pyarrow's reader, a value in a line. It finds exactly one row in a line if each value begins
with `{` and ends with `}` (a line that leaves a brace open is followed by one where a comma must be) and its reader
takes no newline within a string; so the number of rows tells whether all is in order. Where it is not, halves are
tried, down to a few values that plain Python reads, which knows more spellings than pyarrow does and names what does
not fit. Both follow Spark's from_json: a field that is not there is null, one that is not asked for is left out, a
string takes any JSON as its text; times without a zone are UTC.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import functools
import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
import pyarrow.json as pj  # type: ignore[import-untyped,unused-ignore]
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

_BY_HAND: Final = 16  # so few values are not worth another try of the fast reader
_INTEGERS: Final[dict[type[DataType], int]] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Misfit(ValueError):
    """A value does not fit its schema: `field` is the path to what does not (empty: all), `problem` the reason."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field or 'the value'} {problem}")
        self.field = field
        self.problem = problem


class Bad(NamedTuple):
    """A value that could not be read, by its row."""

    row: int
    misfit: Misfit


class JsonReader:
    """Reads columns of JSON objects of one schema."""

    def __init__(self, schema: StructType, arrow_type: Any) -> None:
        self._schema = schema
        self._type = arrow_type
        self._fast = None if _has_slow(schema) else pa.schema([(f.name, _as_read(f.type)) for f in arrow_type])

    def read(self, values: Any) -> tuple[Any, list[Bad]]:
        """A struct column with a row for each of the binary `values`, null for null; and what could not be read.

        The latter's rows are null.
        """
        bad: list[Bad] = []
        if self._fast is None:
            return self._by_hand(values, 0, bad), bad
        chunks = self._read(values, 0, bad)
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks), bad

    def _read(self, values: Any, first: int, bad: list[Bad]) -> list[Any]:
        whole = self._at_once(values)
        if whole is not None:
            return [whole]
        if len(values) <= _BY_HAND:
            return [self._by_hand(values, first, bad)]
        half = len(values) // 2
        return self._read(values[:half], first, bad) + self._read(values[half:], first + half, bad)

    def _at_once(self, values: Any) -> Any | None:
        count = len(values)
        if values.null_count == count:
            return pa.nulls(count, self._type)
        try:
            texts = values.cast(pa.string())
            texts = texts.fill_null("{}") if texts.null_count else texts
            if not _are_in_braces(texts):
                texts = pc.ascii_trim_whitespace(texts)
                if not _are_in_braces(texts):
                    return None
            lines = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), texts)
            text = pc.binary_join(lines, "\n")[0].as_buffer()
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=pj.ParseOptions(explicit_schema=self._fast, unexpected_field_behavior="ignore"),
            ).combine_chunks()
            if table.num_rows != count:
                return None
            fields = list(self._type)
            children = [_finished(table.column(i).chunk(0), field.type) for i, field in enumerate(fields)]
        except pa.ArrowInvalid:
            return None
        mask = values.is_null() if values.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _by_hand(self, values: Any, first: int, bad: list[Bad]) -> Any:
        rows: list[Any] = []
        for row, value in enumerate(values.to_pylist(), first):
            try:
                rows.append(None if value is None else self.read_one(value))
            except Misfit as misfit:
                bad.append(Bad(row, misfit))
                rows.append(None)
        return pa.array(rows, self._type)

    def read_one(self, value: bytes) -> Any:
        """One value, as what pyarrow makes a row of. Raises Misfit."""
        try:
            parsed = json.loads(value.decode("utf-8"), parse_float=decimal.Decimal)
        except UnicodeDecodeError as error:
            raise Misfit("", f"is not UTF-8 at byte {error.start}") from None
        except ValueError as error:
            raise Misfit("", f"is not JSON: {error}") from None
        except RecursionError:
            raise Misfit("", "is nested too deeply") from None
        return _converter(self._schema)(parsed, "")


def _are_in_braces(texts: Any) -> bool:
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _has_slow(kind: DataType) -> bool:
    """Whether pyarrow's reader does not know a type: maps as objects, bytes as base64."""
    if isinstance(kind, StructType):
        return any(_has_slow(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_slow(kind.elementType)
    return isinstance(kind, (MapType, BinaryType))


def _as_read(kind: Any) -> Any:
    """The Arrow type that pyarrow's reader is asked for: dates and times are texts first."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _as_read(kind.value_type)))
    return kind


def _finished(column: Any, kind: Any) -> Any:
    """A column that pyarrow's reader gave, as `kind`. Raises pa.ArrowInvalid."""
    if column.type.equals(kind) and not pa.types.is_nested(kind):
        return column
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return column.cast(kind)
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:  # without zones, or with and without
            return column.cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_temporal(kind):
        return column.cast(kind)
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        children = [_finished(column.field(i), field.type) for i, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, _finished(column.values, kind.value_type), type=kind, mask=mask)
    return column.cast(kind)


# -- by hand -----------------------------------------------------------------------------------------------------

Converter = Callable[[Any, str], Any]


@functools.cache
def _converter(kind: DataType) -> Converter:
    """What makes of parsed JSON a value of `kind`; takes the path to it too, for the Misfit that it may raise."""
    if isinstance(kind, StructType):
        return _struct_converter(kind)
    if isinstance(kind, ArrayType):
        return _array_converter(kind)
    if isinstance(kind, MapType):
        return _map_converter(kind)
    convert = _scalar(kind)
    words = kind.simpleString()

    def scalar(value: Any, path: str) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
            raise Misfit(path, f"is {_shown(value)}; it must be {words}") from None

    return scalar


def _struct_converter(kind: StructType) -> Converter:
    fields = [(field.name, _converter(field.dataType)) for field in kind.fields]

    def struct(value: Any, path: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(path, f"is {_shown(value)}; it must be an object")
        prefix = f"{path}." if path else ""
        return {name: convert(value.get(name), prefix + name) for name, convert in fields}

    return struct


def _array_converter(kind: ArrayType) -> Converter:
    element = _converter(kind.elementType)

    def array(value: Any, path: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise Misfit(path, f"is {_shown(value)}; it must be an array")
        return [element(each, f"{path}[{i}]") for i, each in enumerate(value)]

    return array


def _map_converter(kind: MapType) -> Converter:
    convert = _converter(kind.valueType)

    def mapping(value: Any, path: str) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(path, f"is {_shown(value)}; it must be an object")
        return [(key, convert(each, f"{path}[{key!r}]")) for key, each in value.items()]

    return mapping


def _shown(value: Any) -> str:
    text = _as_text(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=float)


def _scalar(kind: DataType) -> Callable[[Any], Any]:
    if type(kind) in _INTEGERS:
        return functools.partial(_integer, bits=_INTEGERS[type(kind)])
    if isinstance(kind, (DoubleType, FloatType)):
        return _float
    if isinstance(kind, DecimalType):
        return functools.partial(_decimal, precision=kind.precision, scale=kind.scale)
    readers: dict[type[DataType], Callable[[Any], Any]] = {
        StringType: _string,
        BooleanType: _boolean,
        BinaryType: _binary,
        DateType: _date,
        TimestampType: _timestamp,
        TimestampNTZType: _local_timestamp,
    }
    return readers[type(kind)]


def _integer(value: Any, bits: int) -> int:
    if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
        raise ValueError
    return value


def _float(value: Any) -> float:
    if isinstance(value, str):
        if value not in ("NaN", "Infinity", "-Infinity", "+Infinity", "INF", "-INF", "+INF"):
            raise ValueError
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, decimal.Decimal)):
        raise TypeError
    number = float(value)
    if math.isinf(number) and not isinstance(value, float):
        raise OverflowError
    return number


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, decimal.Decimal)):
        raise TypeError
    with decimal.localcontext(prec=76):
        number = decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
    if not number.is_finite() or (number.adjusted() >= precision - scale and number != 0):
        raise OverflowError
    return number


def _string(value: Any) -> str:
    text = _as_text(value)
    text.encode("utf-8")  # half a surrogate pair is no text
    return text


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _binary(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def _date(value: Any) -> dt.date:
    if not isinstance(value, str):
        raise TypeError
    return dt.date.fromisoformat(value)


def _timestamp(value: Any) -> dt.datetime:
    if type(value) is int:  # seconds, as from_json takes them
        return _EPOCH + dt.timedelta(seconds=value)
    moment = dt.datetime.fromisoformat(value)
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _local_timestamp(value: Any) -> dt.datetime:
    moment = dt.datetime.fromisoformat(value)
    if moment.tzinfo is not None:
        raise ValueError
    return moment
