# ruff: noqa: SIM110 - C has no generators
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Encodes columns as values of Avro's binary encoding. Compiled with `_avro_write.pxd`, or plain Python.

A program is a tree of steps, one for each type of the schema. `avro_writing` builds it, and `bind` sets the columns of
a batch. Java's encoder writes the same bytes: each array or map is one block.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

from ottla.serde.avro_ops import (
    IS_NULL,
    NO_SYMBOL,
    OTHER_SIZE,
    PUT_ARRAY,
    PUT_BOOL,
    PUT_BYTES,
    PUT_DECIMAL,
    PUT_DOUBLE,
    PUT_ENUM,
    PUT_FIXED,
    PUT_FIXED_DECIMAL,
    PUT_FLOAT,
    PUT_INT8,
    PUT_INT16,
    PUT_INT32,
    PUT_INT64,
    PUT_MAP,
    PUT_MEMBERS,
    PUT_NULL,
    PUT_RECORD,
    TOO_LARGE,
)

if not cython.compiled:
    from ottla.serde._builders import BinaryBuilder, Store
    from ottla.serde._views import ColumnView, Held

REASONS = {
    IS_NULL: "is null, which the schema does not allow",
    OTHER_SIZE: "differs in size from the schema's fixed",
    NO_SYMBOL: "is not among the enum's symbols",
    TOO_LARGE: "has more digits than fit the schema's fixed",
}


class WriteStep:
    """How to write one type. `branch` and `null_branch` are indexes within a union, or -1."""

    view: ColumnView

    def __init__(self, op: int, path: str, steps: Any = (), child: int = -1) -> None:
        self.op = op
        self.path = path
        self.steps = list(steps)
        self.count = len(self.steps)
        # The index of the parent's child that this step writes; -1 if it writes the parent itself or has no column.
        self.child = child
        self.size = 0
        self.branch = -1
        self.null_branch = -1
        self.symbols: list[Held] = []
        self.view = None  # type: ignore[assignment]  # until `bind`

    def bind(self, view: ColumnView) -> None:
        """Set the columns to write."""
        self.view = view
        for step in self.steps:
            if step.child >= 0:
                step.bind(view.children[step.child])

    def name(self, symbols: Any) -> None:
        """Set an enum's symbols, as bytes."""
        self.symbols = [Held(symbol) for symbol in symbols]


class Writer:
    """The output, and the step and reason of a failure."""

    failed: WriteStep

    def __init__(self, out: Store) -> None:
        self.out = out
        self.failed = None  # type: ignore[assignment]  # until `_fail`
        self.reason = 0

    def _fail(self, step: WriteStep, reason: int) -> bool:
        self.failed = step
        self.reason = reason
        return False

    def _put_number(self, value: int) -> int:
        store = self.out
        rest = (value << 1) ^ (value >> 63)
        if not cython.compiled:
            rest &= 0xFFFFFFFFFFFFFFFF
        store.reserve(10)
        while rest > 127:
            store.bytes[store.used] = (rest & 127) | 128
            store.used += 1
            rest >>= 7
        store.bytes[store.used] = rest
        store.used += 1
        return 0

    def write(self, step: WriteStep, row: int) -> int:
        """Write one value; return False if it does not fit the schema."""
        view = step.view
        if view is None or view.is_null(row):
            if step.null_branch >= 0:
                self._put_number(step.null_branch)
            elif step.op != PUT_NULL:
                return self._fail(step, IS_NULL)
            return True
        if step.op == PUT_MEMBERS:
            return self._write_member(step, row)
        if step.branch >= 0:
            self._put_number(step.branch)
        if step.op == PUT_RECORD:
            for i in range(step.count):
                if not self.write(step.steps[i], row):
                    return False
            return True
        if step.op == PUT_BYTES or step.op == PUT_FIXED or step.op == PUT_ENUM:
            return self._write_bytes(step, row)
        if step.op == PUT_DECIMAL or step.op == PUT_FIXED_DECIMAL:
            return self._write_decimal(step, row)
        if step.op == PUT_ARRAY or step.op == PUT_MAP:
            return self._write_blocks(step, row)
        return self._write_number(step, row)

    def _write_number(self, step: WriteStep, row: int) -> int:
        view = step.view
        at = view.first + row
        if step.op == PUT_DOUBLE:
            self.out.put(view.bytes, 8 * at, 8)
            return True
        if step.op == PUT_FLOAT:
            self.out.put(view.bytes, 4 * at, 4)
            return True
        if step.op == PUT_BOOL:
            self.out.put_byte(view.bit(row))
            return True
        if step.op == PUT_INT64:
            value = view.int64s[at]
        elif step.op == PUT_INT32:
            value = view.int32s[at]
        elif step.op == PUT_INT16:
            value = view.int16s[at]
        elif step.op == PUT_INT8:
            value = view.bytes[at]
            if value > 127:
                value -= 256
        else:  # rounded down before 1970 too, as Spark does
            value = view.int64s[at]
            millis = value // 1000
            if cython.compiled and millis * 1000 > value:
                millis -= 1
            value = millis
        self._put_number(value)
        return True

    def _write_bytes(self, step: WriteStep, row: int) -> int:
        view = step.view
        start = view.start(row)
        size = view.end(row) - start
        if step.op == PUT_FIXED:
            if size != step.size:
                return self._fail(step, OTHER_SIZE)
            self.out.put(view.data, start, size)
            return True
        if step.op == PUT_BYTES:
            self._put_number(size)
            self.out.put(view.data, start, size)
            return True
        for i in range(len(step.symbols)):
            symbol = step.symbols[i]
            if symbol.size == size:
                for j in range(size):
                    if symbol.bytes[j] != view.data[start + j]:
                        break
                else:
                    self._put_number(i)
                    return True
        return self._fail(step, NO_SYMBOL)

    def _write_decimal(self, step: WriteStep, row: int) -> int:
        """Write two's complement, highest byte first, in the fewest bytes or in the size of the fixed."""
        data = step.view.bytes
        start = 16 * (step.view.first + row)
        sign = 255 if data[start + 15] & 128 else 0
        size = 16
        while size > 1 and data[start + size - 1] == sign and (data[start + size - 2] & 128) == (sign & 128):
            size -= 1
        if step.op == PUT_DECIMAL:
            self._put_number(size)
        else:
            if size > step.size:
                return self._fail(step, TOO_LARGE)
            for i in range(step.size - size):  # noqa: B007 - declared, as C needs it
                self.out.put_byte(sign)
        for i in range(size):
            self.out.put_byte(data[start + size - 1 - i])
        return True

    def _write_blocks(self, step: WriteStep, row: int) -> int:
        view = step.view
        start = view.start(row)
        end = view.end(row)
        keys = step.steps[0]
        items = step.steps[step.count - 1]
        if end > start:
            self._put_number(end - start)
        for i in range(start, end):
            if step.op == PUT_MAP and not self.write(keys, i):
                return False
            if not self.write(items, i):
                return False
        self._put_number(0)
        return True

    def _write_member(self, step: WriteStep, row: int) -> int:
        """Write the first member that is not null of a union that is stored as a struct of its members."""
        for i in range(step.count):
            member = step.steps[i]
            if not member.view.is_null(row):
                return self.write(member, row)
        if step.null_branch < 0:
            return self._fail(step, IS_NULL)
        self._put_number(step.null_branch)
        return True


def encode(step: WriteStep, builder: Any, view: Any) -> tuple[int, str, str] | None:
    """Append the value of each row; stop at the first that does not fit and return its row, path and reason."""
    return _encode(step, builder, view)


def _encode(step: WriteStep, builder: BinaryBuilder, view: ColumnView) -> tuple[int, str, str] | None:
    writer = Writer(builder.data)
    step.bind(view)
    for row in range(view.length):
        if view.is_null(row):
            builder.append_null()
            continue
        if not writer.write(step, row):
            return row, writer.failed.path, REASONS[writer.reason]
        builder.append_rest()
    return None
