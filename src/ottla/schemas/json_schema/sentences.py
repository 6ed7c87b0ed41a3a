"""Sentences for the kinds of differences."""

from __future__ import annotations

from typing import Final

from ottla.schemas.model import Incompatibility

_ADDED: Final = "The keyword at path '{path}' in the reader schema is not present in the writer schema"
_REMOVED: Final = "The content at path '{path}' is permitted in the writer schema but not in the reader schema"
_LESS: Final = "The value at path '{path}' in the reader schema is less than its value in the writer schema"
_MORE: Final = "The value at path '{path}' in the reader schema is more than its value in the writer schema"
_CHANGED: Final = "The value at path '{path}' is different between the reader schema and the writer schema"
_TYPE: Final = "The type at path '{path}' is different between the reader schema and the writer schema"
_NARROWED: Final = (
    "An array or combined type at path '{path}' has fewer elements in the reader schema than in the writer schema"
)
_EXTENDED: Final = (
    "An array or combined type at path '{path}' has more elements in the reader schema than in the writer schema"
)
_OPEN: Final = (
    "The writer schema has an open content model, and the property or item at path '{path}' in the reader schema is "
    "missing in the writer schema"
)
_UNOPEN: Final = (
    "The required property at path '{path}' in the reader schema is missing in the writer schema and has no default"
)
_CLOSED: Final = (
    "The reader schema has a closed content model, and the property or item at path '{path}' in the writer schema is "
    "missing in the reader schema"
)
_PARTIAL: Final = (
    "The property or item at path '{path}' is in only one of the reader schema and the writer schema, and the "
    "partially open content model of the other does not cover it"
)
_EXACT: Final = {
    "SCHEMA_ADDED": _ADDED,
    "TYPE_CHANGED": _TYPE,
    "TYPE_NARROWED": _TYPE,
    "COMBINED_TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _UNOPEN,
    "MULTIPLE_OF_EXPANDED": _MORE,
}
_ENDINGS: Final = (
    ("_ADDED_TO_OPEN_CONTENT_MODEL", _OPEN),
    ("_REMOVED_FROM_CLOSED_CONTENT_MODEL", _CLOSED),
    ("_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", _PARTIAL),
    ("_ADDED", _ADDED),
    ("_REMOVED", _REMOVED),
    ("_DECREASED", _LESS),
    ("_INCREASED", _MORE),
    ("_NARROWED", _NARROWED),
    ("_EXTENDED", _EXTENDED),
    ("_CHANGED", _CHANGED),
)


def incompatibility(kind: str, steps: tuple[str, ...]) -> Incompatibility:
    """A difference with its path and a sentence."""
    path = f"#/{'/'.join(steps)}"
    sentence = _EXACT.get(kind) or next(text for ending, text in _ENDINGS if kind.endswith(ending))
    return Incompatibility(kind, path, sentence.replace("{path}", path))
