"""The rows of a dump: one for each batch, record, index entry, and problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """`kind` is file, batch, record, entry, line, warning, damage or end; `fields` are for JSON and for people."""

    kind: str
    fields: Mapping[str, Any]


Rows = Iterator[Row]


def damage(text: str, **where: object) -> Row:
    """Return a row for a defect that a sound log cannot have."""
    return Row("damage", {"problem": text, **where})


def warning(text: str, **where: object) -> Row:
    """Return a row for something unusual that a sound log can have."""
    return Row("warning", {"problem": text, **where})
