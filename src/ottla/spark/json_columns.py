"""Converts JSON texts to typed columns and back, as Spark's from_json and to_json do. See `serde`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import array_of, plan_of, rows_of, view_of
from ottla.serde._json import decode
from ottla.serde._json_writer import encode

if TYPE_CHECKING:
    from ottla.serde._json import Bad


def read_json(values: Any, kind: Any, only_first: bool = False) -> tuple[Any, list[Bad]]:
    """Return a column of the Arrow type `kind` with a row for each of the binary `values`; and the invalid values.

    The rows of invalid, null and blank values are null. With `only_first`, the column ends at the first invalid value.
    """
    column, bad = decode(plan_of(kind), rows_of(values), only_first)
    return array_of(kind, column), bad


def to_json(column: Any) -> Any:
    """Return the JSON texts of a column as a binary array; null for null."""
    return array_of(pa.binary(), encode(plan_of(column.type), view_of(column)))
