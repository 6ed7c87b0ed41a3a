# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Decodes a column of JSON texts into typed columns, in one pass. Compiled with `_json.pxd`, or plain Python.

Fields that the plan does not have are skipped. A missing field is null; for duplicate fields the last one wins.
`_json_text` defines which texts are JSON, `_json_scalars` how scalars are read.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import BinaryBuilder, ListBuilder, MapBuilder, Store, StructBuilder
    from ottla.serde._json_scalars import Reader
    from ottla.serde._json_text import BRACKET, BROKEN, CLOSE, CLOSING, COMMA, MISFIT, OPEN, QUOTE, Text
    from ottla.serde._views import ByteRows, is_utf8

from ottla.serde._builders import Column, Plan
from ottla.serde._builders import builder as builder_of
from ottla.serde._json_scalars import (
    BinaryReader,
    BoolReader,
    DateReader,
    DecimalReader,
    FloatReader,
    IntReader,
    StringReader,
    TimestampReader,
)

_FEW = 8  # up to this many keys of a map are compared one by one
_WORDS = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float32": "float",
    "float64": "double", "date32": "date", "timestamp_us": "timestamp", "string": "string", "binary": "binary",
    "struct": "an object", "list": "an array", "map": "an object",
}  # fmt: skip


class Bad(NamedTuple):
    """A row that could not be decoded: `field` is the path to the wrong value (empty: the row), `problem` says why."""

    row: int
    field: str
    problem: str


def decode(plan: Plan, rows: ByteRows, only_first: bool = False) -> tuple[Column, list[Bad]]:
    """Return a column of `plan` with one row for each of `rows`, and the rows that could not be decoded.

    Bad rows become null, and so do null and blank rows. With `only_first`, decoding stops after the first bad row.
    """
    root = _reader(plan, builder_of(plan))
    text = Text()
    bad = []
    for row in range(rows.length):
        if rows.is_null(row):
            root.column.append_null()
            continue
        begin = rows.start(row)
        end = rows.end(row)
        text.look_at(rows.data, end)
        at = text.blank(begin)
        if at == end:
            root.column.append_null()
            continue
        if is_utf8(rows.data, begin, end - begin):
            at = root.read(text, at)
            if at >= 0 and text.blank(at) == end:
                continue
        else:
            at = BROKEN
        bad.append(_bad(row, text, rows.data, begin, end, at == MISFIT))
        root.column.truncate(row)
        root.column.append_null()
        if only_first:
            break
    return root.column.finish(), bad


def _bad(row: int, text: Text, data: memoryview, begin: int, end: int, is_misfit: bool) -> Any:
    if is_misfit:
        path = ""
        for step in reversed(text.path):
            path += step if step[:1] == "[" or not path else f".{step}"
        text.path.clear()
        return Bad(row, path, text.misfit)
    whole = bytes(data[begin:end])
    try:
        json.loads(whole.decode("utf-8"))
        problem = "is not JSON"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 at byte {error.start}"
    except ValueError as error:
        problem = f"is not JSON: {error}"
    except RecursionError:
        problem = "is nested too deeply"
    return Bad(row, "", problem)


# -- readers -----------------------------------------------------------------------------------------------------


def _reader(plan: Any, column: Any) -> Any:
    """Return the reader that appends values of `plan` to the builder `column`."""
    kind = plan[0]
    words = _WORDS.get(kind) or f"decimal({plan[1]},{plan[2]})"
    if kind == "struct":
        children = [_reader(child, column.children[i]) for i, (_, child) in enumerate(plan[1])]
        return StructReader(column, words, [name for name, _ in plan[1]], children)
    if kind == "list":
        return ListReader(column, words, _reader(plan[1], column.items))
    if kind == "map":
        if plan[1] != ("string",):
            raise ValueError(f"JSON keys are strings, so a map cannot have keys of type {plan[1][0]!r}")
        return MapReader(column, words, _reader(plan[2], column.values))
    if kind == "timestamp_us":
        return TimestampReader(column, words, len(plan) < 2 or plan[1])
    readers = {"bool": BoolReader, "float32": FloatReader, "float64": FloatReader, "decimal128": DecimalReader,
               "string": StringReader, "binary": BinaryReader, "date32": DateReader}  # fmt: skip
    return readers.get(kind, IntReader)(column, words)


class StructReader(Reader):
    """Reads objects.

    Records usually have their fields in the same order. So a name is first compared with the field after the previous
    one, and only then looked up in a hash table with open addressing (`slots`, FNV-1a hashes).
    """

    def __init__(self, column: StructBuilder, words: Any, names: list[str], children: list[Reader]) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.names = names
        self.children = children
        self.count = len(children)
        encoded = [name.encode() for name in names]
        self.letters = Store(sum(map(len, encoded)))
        self.starts = Store(8 * (self.count + 1))
        self.starts.int64s[0] = 0
        for i in range(self.count):
            self.letters.put_value(encoded[i])
            self.starts.int64s[i + 1] = self.letters.used
        # A name that JSON must escape is never compared directly, only looked up unescaped.
        self.last_plain = -1
        while self.last_plain + 1 < self.count and not re.search(rb'["\\\x00-\x1f]', encoded[self.last_plain + 1]):
            self.last_plain += 1
        self.mask = (1 << (4 * self.count).bit_length()) - 1
        self.slots = Store(8 * (self.mask + 1))
        for i in range(self.mask + 1):
            self.slots.int64s[i] = -1
        for i in range(self.count):
            slot = self._slot(self.letters.bytes, self.starts.int64s[i], len(encoded[i]))
            self.slots.int64s[slot] = i

    def read(self, text: Text, at: int) -> int:  # noqa: C901 - the hot loop over fields stays in one function
        data = text.data
        end = text.end
        if data[at] != OPEN:
            return self.other(text, at)
        row = self.column.length
        missing = self.count
        expected = 0
        at = text.blank(at + 1)
        if at < end and data[at] == CLOSE:
            at += 1
        else:
            while True:
                index = self._field(text, at, expected)
                if index == BROKEN:
                    return BROKEN
                at = text.colon(text.last + 1, None)
                if at < 0:
                    return at
                if at >= end:
                    return BROKEN
                if index < 0:
                    at = text.value(at, None)
                    if at < 0:
                        return at
                else:
                    expected = index + 1
                    child = self.children[index]
                    if child.column.length == row:
                        missing -= 1
                    else:  # a duplicate field
                        child.column.truncate(row)
                    at = child.read(text, at)
                    if at < 0:
                        return self._failed(text, at, index)
                at = text.blank(at)
                if at >= end:
                    return BROKEN
                if data[at] == CLOSE:
                    at += 1
                    break
                if data[at] != COMMA:
                    return BROKEN
                at = text.blank(at + 1)
        if missing:
            for index in range(self.count):
                child = self.children[index]
                if child.column.length == row:
                    child.column.append_null()
        self.into.append()
        return at

    def _failed(self, text: Text, failure: int, index: int) -> int:
        if failure == MISFIT:
            text.path.append(self.names[index])
        return failure

    def _field(self, text: Text, at: int, expected: int) -> int:
        """Return the index of the field named at `at`, or -4 for an unknown name; set `last` to the end of the name."""
        if expected <= self.last_plain:
            start = self.starts.int64s[expected]
            size = self.starts.int64s[expected + 1] - start
            if (
                text.end - at > size + 1
                and text.data[at] == QUOTE
                and text.data[at + 1 + size] == QUOTE
                and _are_same(text.data, at + 1, self.letters.bytes, start, size)
            ):
                text.last = at + 1 + size
                return expected
        if text.string(at) < 0:
            return BROKEN
        if text.escaped:
            text.unescape()
            slot = self._slot(text.scratch.bytes, 0, text.scratch.used)
        else:
            slot = self._slot(text.data, text.first, text.last - text.first)
        index = self.slots.int64s[slot]
        return index if index >= 0 else -4

    def _slot(self, data: memoryview, start: int, size: int) -> int:
        """Return the slot of a name in the hash table, or the free slot for it."""
        code = 2166136261
        for i in range(size):
            code = ((code ^ data[start + i]) * 16777619) & 0xFFFFFFFF
        slot = (code ^ code >> 15) & self.mask
        while True:
            index = self.slots.int64s[slot]
            if index < 0:
                return slot
            first = self.starts.int64s[index]
            if self.starts.int64s[index + 1] - first == size and _are_same(
                data, start, self.letters.bytes, first, size
            ):
                return slot
            slot = (slot + 1) & self.mask


def _are_same(one: memoryview, start: int, other: memoryview, first: int, size: int) -> bool:
    if cython.compiled:
        return memcmp(one + start, other + first, size) == 0
    return one[start : start + size] == other[first : first + size]


class ListReader(Reader):
    def __init__(self, column: ListBuilder, words: Any, items: Reader) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.items = items

    def read(self, text: Text, at: int) -> int:
        if text.data[at] != BRACKET:
            return self.other(text, at)
        begin = self.items.column.length
        at = text.blank(at + 1)
        if at < text.end and text.data[at] == CLOSING:
            self.into.append()
            return at + 1
        while at < text.end:
            at = self.items.read(text, at)
            if at < 0:
                if at == MISFIT:
                    text.path.append(f"[{self.items.column.length - begin}]")
                return at
            at = text.blank(at)
            if at >= text.end:
                break
            if text.data[at] == CLOSING:
                self.into.append()
                return at + 1
            if text.data[at] != COMMA:
                break
            at = text.blank(at + 1)
        return BROKEN


class MapReader(Reader):
    """Reads objects as maps. For duplicate keys the last value wins."""

    keys: BinaryBuilder
    entries: StructBuilder

    def __init__(self, column: MapBuilder, words: Any, values: Reader) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.keys = column.keys  # type: ignore[assignment]
        self.entries = column.items  # type: ignore[assignment]
        self.values = values

    def read(self, text: Text, at: int) -> int:
        if text.data[at] != OPEN:
            return self.other(text, at)
        begin = self.entries.length
        start = at
        known: set[Any] | None = None
        at = text.blank(at + 1)
        if at < text.end and text.data[at] == CLOSE:
            self.into.append()
            return at + 1
        while True:
            at = self._key(text, at)
            if at < 0:
                return at
            if self.entries.length - begin >= _FEW:
                known = self._known(begin, known)
            if self._is_duplicate(begin, known):
                self.entries.truncate(begin)
                return self._read_with_duplicates(text, start)
            at = self.values.read(text, at)
            if at < 0:
                return self._failed(text, at)
            self.entries.append()
            at = text.blank(at)
            if at >= text.end:
                return BROKEN
            if text.data[at] == CLOSE:
                self.into.append()
                return at + 1
            if text.data[at] != COMMA:
                return BROKEN
            at = text.blank(at + 1)

    def _key(self, text: Text, at: int) -> int:
        """Append a key to its column, and scan up to its value."""
        at = text.string(at)
        if at < 0:
            return at
        text.put_string(self.keys.data)
        self.keys.append_rest()
        at = text.colon(at, None)
        return BROKEN if at >= text.end else at

    def _key_at(self, row: int) -> bytes:
        """Return the key of a row."""
        start = self.keys.ends.int32s[row]
        return bytes(self.keys.data.bytes[start : self.keys.ends.int32s[row + 1]])

    def _known(self, begin: int, known: set[Any] | None) -> set[Any]:
        """Return the keys from `begin` to the last but one as a set; only used for maps with many keys."""
        if known is None:
            return {self._key_at(row) for row in range(begin, self.entries.length)}
        known.add(self._key_at(self.entries.length - 1))
        return known

    def _is_duplicate(self, begin: int, known: set[Any] | None) -> bool:
        """Return whether the last key occurred before."""
        last = self.entries.length
        if known is not None:
            return self._key_at(last) in known
        data = self.keys.data.bytes
        ends = self.keys.ends.int32s
        size = ends[last + 1] - ends[last]
        for row in range(begin, last):
            if ends[row + 1] - ends[row] == size and _are_same(data, ends[row], data, ends[last], size):
                return True
        return False

    def _read_with_duplicates(self, text: Text, at: int) -> int:
        """Read a map with duplicate keys: first locate the last value of each key, then read these values."""
        found = {}
        at = text.blank(at + 1)
        while True:
            at = text.string(at)
            if at < 0:
                return at
            text.unescape()
            key = bytes(text.scratch.bytes[: text.scratch.used])
            at = text.colon(at, None)
            if at < 0:
                return at
            found[key] = at
            at = text.value(at, None)
            if at < 0:
                return at
            at = text.blank(at)
            if at >= text.end:
                return BROKEN
            if text.data[at] == CLOSE:
                break
            if text.data[at] != COMMA:
                return BROKEN
            at = text.blank(at + 1)
        for key, where in found.items():
            self.keys.append_value(key)
            after = self.values.read(text, where)
            if after < 0:
                return self._failed(text, after)
            self.entries.append()
        self.into.append()
        return at + 1

    def _failed(self, text: Text, failure: int) -> int:
        if failure == MISFIT:
            text.path.append(f"[{self._key_at(self.keys.length - 1).decode()!r}]")
        return failure
