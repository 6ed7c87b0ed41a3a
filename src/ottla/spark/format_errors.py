"""Errors of keys and values that do not match their format. Without pyspark and pyarrow."""

from __future__ import annotations


class FormatError(ValueError):
    """A key or value does not match its format; the message names field, topic, partition and offset."""


def what(part: str, path: str) -> str:
    """Return `the value`, or `the value's field x`."""
    return f"the {part}'s field {path}" if path else f"the {part}"


def place(topic: str, partition: int, offset: int) -> str:
    """Return where a record is, as the beginning of a message."""
    return f"Topic {topic!r}, partition {partition}, offset {offset}"
