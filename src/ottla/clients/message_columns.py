"""Protobuf messages as Arrow columns. Needs pyarrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.arrow_columns import InvalidValue
from ottla.serde.protobuf_fields import Lists, Structs, Values, fields_of


class MessageColumns:
    """Converts messages of a descriptor to columns of an Arrow type, which has the layout of `message_plan`."""

    def __init__(self, descriptor: Any, arrow_type: Any) -> None:
        self._descriptor = descriptor
        self._type = arrow_type

    def column(self, messages: list[Any]) -> tuple[Any, list[InvalidValue]]:
        """Return a column of messages, null for None; and the messages that no column can hold, whose rows are null."""
        try:
            return self._column(messages), []
        except (ValueError, pa.ArrowException):
            kept = list(messages)
            bad = self._refused(kept)
            return self._column(kept), bad

    def _refused(self, messages: list[Any]) -> list[InvalidValue]:
        """Replace the messages that no column can hold by None, and return their rows."""
        bad = []
        for row, message in enumerate(messages):
            try:
                self._column([message])
            except (ValueError, pa.ArrowException) as error:
                bad.append((row, "", f"has a field without a column: {error}"))
                messages[row] = None
        return bad

    def _column(self, messages: list[Any]) -> Any:
        return _array(fields_of(self._descriptor, messages), self._type)


def _array(given: Values, kind: Any) -> Any:
    """Return an Arrow array of this type."""
    if isinstance(given, Structs):
        mask = pa.array(given.is_null) if any(given.is_null) else None
        children = [_array(each, kind[index].type) for index, each in enumerate(given.fields.values())]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if isinstance(given, Lists):
        offsets = pa.array(given.offsets, pa.int32())
        if given.keys is None:
            return pa.ListArray.from_arrays(offsets, _array(given.items, kind.value_type), kind)
        keys, items = _array(given.keys, kind.key_type), _array(given.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, kind)
    return pa.array(given.values, pa.int64()).cast(kind) if given.is_time else pa.array(given.values, kind)
