"""Rows: what a dump yields, one for each batch, record, entry, and each thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """`kind` is file, batch, record, entry, line, warning, damage or end; `fields` are for JSON and for people."""

    kind: str
    fields: Mapping[str, Any]


Rows = Iterator[Row]


def damage(text: str, **where: object) -> Row:
    """Something that cannot be in a sound log."""
    return Row("damage", {"problem": text, **where})


def warning(text: str, **where: object) -> Row:
    """Something that deserves a look but can be as it should."""
    return Row("warning", {"problem": text, **where})
