"""Debezium's adjustment of names for Avro (io.debezium.schema.SchemaNameAdjuster)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Adjust: TypeAlias = Callable[[str], str]
MODES: Final = ("none", "avro", "avro_unicode")


def _with_underscores(text: str) -> str:
    prefix = "_" if text[:1].isdigit() else ""
    return prefix + re.sub(r"[^A-Za-z0-9_.]", "_", text)


def _with_code_points(text: str) -> str:
    # The underscore begins a replacement, so it is replaced, too.
    first, rest = re.sub(r"[^A-Za-z]", _code_point, text[:1]), re.sub(r"[^A-Za-z0-9.]", _code_point, text[1:])
    return first + rest


def _code_point(found: re.Match[str]) -> str:
    return f"_u{ord(found[0]):04x}"


_BY_MODE: Final[Mapping[str, Adjust]] = {
    "none": lambda text: text,
    "avro": _with_underscores,
    "avro_unicode": _with_code_points,
}


def adjuster(mode: str) -> Adjust:
    """Return the function of `schema.name.adjustment.mode` or `field.name.adjustment.mode`."""
    return _BY_MODE[mode]
