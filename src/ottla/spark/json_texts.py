"""Typed columns into a column of JSON texts, one object a row, as Spark's to_json writes them.

Null fields are left out; timestamps are ISO 8601 in UTC with six digits of a second, bytes base64. Columns are put
together as wholes by pyarrow; only lists, maps and bytes go through Python one by one.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

_TIME: Final = "%Y-%m-%dT%H:%M:%S"
_NEEDS_ESCAPE: Final = r'["\\\x00-\x1f]'


def to_json(column: Any) -> Any:
    """The texts of a column of structs, or of anything else that JSON has, as a binary array; null for null."""
    return _text(column).cast(pa.binary())


def _text(column: Any) -> Any:
    """A column's values as JSON, null for null."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        return _wrapped(pc.strftime(column, _TIME + ("Z" if kind.tz else "")), '"', '"')
    if pa.types.is_date(kind):
        return _wrapped(column.cast(pa.string()), '"', '"')
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    return _by_hand(column)


def _objects(column: Any) -> Any:
    if not len(column.type):
        texts = pa.repeat("{}", len(column))
    else:
        pieces = []
        for field, values in zip(column.type, column.flatten(), strict=True):
            pieces.append(_wrapped(_text(values), f",{json.dumps(field.name, ensure_ascii=False)}:", ""))
        body = pc.binary_join_element_wise(*pieces, "}", "", null_handling="replace", null_replacement="")
        # Each field that is there brings its comma along: the first of them becomes the opening brace.
        has_none = pc.equal(body, "}")
        texts = pc.if_else(has_none, "{}", pc.binary_replace_slice(body, 0, 1, "{"))
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts


def _wrapped(texts: Any, before: str, after: str) -> Any:
    return pc.binary_join_element_wise(before, texts, after, "")  # null for null


def _quoted(texts: Any) -> Any:
    special = pc.match_substring_regex(texts, _NEEDS_ESCAPE)
    if pc.any(special).as_py():
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts.filter(special).to_pylist()]
        texts = pc.replace_with_mask(texts, special.fill_null(False), pa.array(escaped, pa.string()))
    return _wrapped(texts, '"', '"')


def _floats(column: Any) -> Any:
    texts = column.cast(pa.string())
    if not pc.all(pc.is_finite(column)).as_py():
        spelt = pc.if_else(pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"'))
        texts = pc.if_else(pc.is_finite(column), texts, spelt)
    return texts


def _by_hand(column: Any) -> Any:
    kind = column.type
    return pa.array([None if row is None else _dumped(row, kind) for row in column.to_pylist()], pa.string())


def _dumped(value: Any, kind: Any) -> str:
    """JSON of a value of Python that pyarrow made of one of type `kind`."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        fields = ((field.name, value[field.name], field.type) for field in kind)
        return _braces((name, _dumped(each, of)) for name, each, of in fields if each is not None)
    if pa.types.is_map(kind):
        return _braces((str(key), _dumped(each, kind.item_type)) for key, each in value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"[{','.join(_dumped(each, kind.value_type) for each in value)}]"
    return _scalar(value)


def _braces(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members) + "}"


def _scalar(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if isinstance(value, (bytes, bytearray)):
        return f'"{base64.b64encode(value).decode("ascii")}"'
    if isinstance(value, dt.datetime):
        moment = value.astimezone(dt.UTC) if value.tzinfo else value
        return f'"{moment.strftime(_TIME)}.{moment.microsecond:06}{"Z" if value.tzinfo else ""}"'
    if isinstance(value, dt.date):
        return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=False)
