# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Decodes values of Avro's binary encoding into columns. Compiled with `_avro.pxd`, or plain Python.

A program is a tree of steps, one for each type of the writer's schema; `avro` builds it. Running it on a value appends
the value to the builders. At the first error, the reader stores the step and the reason, and the caller removes the
partial row. Every length and count is checked against the remaining bytes of the value. As in Java's reader, bytes
after the value are ignored.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

from ottla.serde.avro_ops import (
    BOOL,
    BRANCH,
    BYTES,
    CHECK_BOOL,
    CHECK_ENUM,
    CHECK_INT,
    CHECK_TEXT,
    CHOICE,
    CONSTANT,
    CUT,
    DEPTH,
    DIGITS,
    DOUBLE,
    ENUM,
    FIXED,
    FIXED_DECIMAL,
    FLOAT,
    HEADER,
    INT,
    INT_FLOAT,
    ITEMS,
    LENGTH,
    LONG,
    LONG_FLOAT,
    LONG_NUMBER,
    MAP,
    MEMBER,
    NESTED,
    NO_BOOL,
    NOTHING,
    RANGE,
    RECORD,
    REFUSED,
    REST,
    SKIP_FIXED,
    SKIP_NUMBER,
    SYMBOL,
    TEXT,
    UNRESOLVED,
    UTF8,
)

if not cython.compiled:
    import struct

    from ottla.serde._builders import (
        BinaryBuilder,
        BoolBuilder,
        Builder,
        DecimalBuilder,
        FloatBuilder,
        IntBuilder,
        ListBuilder,
        MapBuilder,
        StructBuilder,
    )
    from ottla.serde._views import ByteRows, Held, is_utf8

REASONS = {
    CUT: "ends before its value does",
    LONG_NUMBER: "has a number of more than 64 bits",
    RANGE: "has a number that does not fit its type",
    LENGTH: "has a negative length",
    SYMBOL: "has an index beyond its enum's symbols",
    BRANCH: "has an index beyond its union's branches",
    UTF8: "is not UTF-8",
    DIGITS: "has more digits than its decimal's precision",
    ITEMS: "has more than a million items of zero bytes",
    UNRESOLVED: "was written as a type, or a symbol, that the reader's schema does not have",
    HEADER: "does not begin with the header of Confluent's wire format",
    NO_BOOL: "has a boolean that is neither 0 nor 1",
    DEPTH: "is nested more than 150 deep",
    REST: "has bytes after its last field",
}
MOST_EMPTY_ITEMS = 1_000_000
MOST_NESTED = 150  # of a recursive type: it protects the stack


class Step:
    """The operation for one type. `builder` is None for a type that is skipped.

    Otherwise the operation determines the builder's type, so that compiled code casts it without a check. Typed
    references beside it took 8 attributes; in an object of their own they made decoding 9 % slower.
    """

    constant: Held
    symbols: list[Held]
    builder: Builder

    def __init__(self, op: int, path: str, builder: Any = None, steps: Any = ()) -> None:
        self.op = op
        self.path = path
        self.steps = list(steps)
        self.count = len(self.steps)
        self.least = 1  # the smallest size of an item in bytes
        self.size = 0
        self.factor = 1
        self.symbols = []
        self.constant = None  # type: ignore[assignment]  # until `hold`
        self.builder = builder

    def hold(self, value: bytes) -> None:
        """Set the encoded value of a CONSTANT."""
        self.constant = Held(value)

    def name(self, symbols: Any) -> None:
        """Set an ENUM's symbols, as bytes; None for a symbol that the reader's schema does not have."""
        self.symbols = [None if symbol is None else Held(symbol) for symbol in symbols]  # type: ignore[misc]
        self.count = len(self.symbols)


class Reader:
    """The position in the current value, and the step and reason of a failure."""

    data: memoryview
    failed: Step

    def __init__(self) -> None:
        self.at = 0
        self.end = 0
        self.number = 0
        self.empty_items = 0  # items of zero bytes in the current value
        self.depth = 0  # of NESTED steps
        self.failed = None  # type: ignore[assignment]  # until `_fail`
        self.reason = 0

    def _fail(self, step: Step, reason: int) -> bool:
        self.failed = step
        self.reason = reason
        return False

    def _number(self, step: Step) -> bool:
        """Read a zigzag number of variable length into `number`."""
        value = 0
        shift = 0
        at = self.at
        while True:
            if at >= self.end:
                return self._fail(step, CUT)
            part = self.data[at]
            at += 1
            value |= (part & 127) << shift
            if part < 128:
                break
            shift += 7
            if shift > 63:
                return self._fail(step, LONG_NUMBER)
        self.at = at
        if not cython.compiled:
            value &= 0xFFFFFFFFFFFFFFFF
        self.number = (value >> 1) ^ -(value & 1)
        return True

    def _float(self) -> float:
        if cython.compiled:
            single = 0
            memcpy(cython.address(single), self.data + self.at, 4)
        else:
            single: float
            (single,) = struct.unpack_from("<f", self.data, self.at)
        self.at += 4
        return single

    def _double(self) -> float:
        if cython.compiled:
            double = 0
            memcpy(cython.address(double), self.data + self.at, 8)
        else:
            double: float
            (double,) = struct.unpack_from("<d", self.data, self.at)
        self.at += 8
        return double

    def read(self, step: Step) -> int:
        """Read and append one value; return False if it does not fit, in which case a part may be appended."""
        if step.op <= SKIP_NUMBER:
            if not self._number(step):
                return False
            if step.op == CHOICE:
                if self.number < 0 or self.number >= step.count:
                    return self._fail(step, BRANCH)
                return self.read(step.steps[self.number])
            return self._read_number(step)
        if step.op <= DOUBLE:
            return self._read_fixed_width(step)
        if step.op <= SKIP_FIXED:
            return self._read_bytes(step)
        if step.op == RECORD:
            for i in range(step.count):
                if not self.read(step.steps[i]):
                    return False
            if step.builder is not None:
                cython.cast(StructBuilder, step.builder).append()
            return True
        return self._read_around(step)

    def _read_around(self, step: Step) -> int:
        if step.op == NOTHING:
            if step.builder is not None:
                step.builder.append_null()
            return True
        if step.op == MEMBER:
            for i in range(step.count):
                if i != step.size:
                    child = cython.cast(StructBuilder, step.builder).children[i]
                    child.append_null()
                elif not self.read(step.steps[i]):
                    return False
            cython.cast(StructBuilder, step.builder).append()
            return True
        if step.op == CONSTANT:
            return self._read_constant(step)
        if step.op == REFUSED:
            return self._fail(step, UNRESOLVED)
        if step.op == CHECK_BOOL:
            if self.at >= self.end:
                return self._fail(step, CUT)
            self.at += 1
            return self.data[self.at - 1] <= 1 or self._fail(step, NO_BOOL)
        if step.op == NESTED:
            return self._read_nested(step)
        return self._read_blocks(step)

    def _read_nested(self, step: Step) -> int:
        """Read a value of a recursive type."""
        if self.depth >= MOST_NESTED:
            return self._fail(step, DEPTH)
        self.depth += 1
        fits = self.read(step.steps[0])
        self.depth -= 1
        return fits

    def _read_number(self, step: Step) -> int:
        if step.op == LONG:
            if step.factor != 1:
                if self.number > 9223372036854775 or self.number < -9223372036854775:
                    return self._fail(step, RANGE)
                self.number *= step.factor
            cython.cast(IntBuilder, step.builder).append_int(self.number)
        elif step.op == INT or step.op == INT_FLOAT:
            if self.number < -2147483648 or self.number > 2147483647:
                return self._fail(step, RANGE)
            if step.op == INT:
                cython.cast(IntBuilder, step.builder).append_int(self.number)
            else:
                cython.cast(FloatBuilder, step.builder).append_float(self.number)
        elif step.op == LONG_FLOAT:
            cython.cast(FloatBuilder, step.builder).append_float(self.number)
        elif step.op == ENUM:
            if self.number < 0 or self.number >= step.count:
                return self._fail(step, SYMBOL)
            if step.symbols[self.number] is None:
                return self._fail(step, UNRESOLVED)
            symbol = step.symbols[self.number]
            cython.cast(BinaryBuilder, step.builder).append_bytes(symbol.bytes, 0, symbol.size)
        elif step.op == CHECK_INT:
            if self.number < -2147483648 or self.number > 2147483647:
                return self._fail(step, RANGE)
        elif step.op == CHECK_ENUM and (self.number < 0 or self.number >= step.count):
            return self._fail(step, SYMBOL)
        return True

    def _read_fixed_width(self, step: Step) -> int:
        if self.end - self.at < (1 if step.op == BOOL else 4 if step.op == FLOAT else 8):
            return self._fail(step, CUT)
        if step.op == BOOL:
            cython.cast(BoolBuilder, step.builder).append_bool(self.data[self.at] == 1)
            self.at += 1
        else:
            cython.cast(FloatBuilder, step.builder).append_float(self._float() if step.op == FLOAT else self._double())
        return True

    def _read_bytes(self, step: Step) -> int:
        if step.op == FIXED or step.op == FIXED_DECIMAL or step.op == SKIP_FIXED:
            size = step.size
        else:
            if not self._number(step):
                return False
            if self.number < 0:
                return self._fail(step, LENGTH)
            if self.number > self.end - self.at:
                return self._fail(step, CUT)
            size = self.number
        if size > self.end - self.at:
            return self._fail(step, CUT)
        if step.op == TEXT:
            if not cython.cast(BinaryBuilder, step.builder).append_text(self.data, self.at, size):
                return self._fail(step, UTF8)
        elif step.op == BYTES or step.op == FIXED:
            cython.cast(BinaryBuilder, step.builder).append_bytes(self.data, self.at, size)
        elif step.op == CHECK_TEXT:
            if not is_utf8(self.data, self.at, size):
                return self._fail(step, UTF8)
        elif step.builder is not None and (
            size == 0 or not cython.cast(DecimalBuilder, step.builder).append_big_endian(self.data, self.at, size)
        ):
            return self._fail(step, DIGITS)
        self.at += size
        return True

    def _read_constant(self, step: Step) -> int:
        data = self.data
        at = self.at
        end = self.end
        self.data = step.constant.bytes
        self.at = 0
        self.end = step.constant.size
        fits = self.read(step.steps[0])
        self.data = data
        self.at = at
        self.end = end
        return fits

    def _count(self, step: Step) -> bool:
        """Read the item count of a block into `number`. A negative count is followed by the block's size in bytes."""
        if not self._number(step):
            return False
        if self.number < 0:
            # The smallest number of 64 bits cannot be negated. Any count so large exceeds the value's end anyway.
            count = 0x7FFFFFFFFFFFFFFF if self.number < -0x7FFFFFFFFFFFFFFF else -self.number
            if not self._number(step):
                return False
            if self.number < 0:
                return self._fail(step, LENGTH)
            self.number = count
        if step.least > 0:
            return self.number <= (self.end - self.at) // step.least or self._fail(step, CUT)
        self.empty_items += self.number if self.number <= MOST_EMPTY_ITEMS else MOST_EMPTY_ITEMS + 1
        return self.empty_items <= MOST_EMPTY_ITEMS or self._fail(step, ITEMS)

    def _read_blocks(self, step: Step) -> int:
        """Read blocks of items up to the empty block."""
        is_map = step.op == MAP
        keys = step.steps[0]
        items = step.steps[1] if is_map else keys
        while True:
            if not self._count(step):
                return False
            if self.number == 0:
                break
            count = self.number
            for i in range(count):  # noqa: B007 - declared, as C needs it
                if is_map and not self.read(keys):
                    return False
                if not self.read(items):
                    return False
                if is_map and step.builder is not None:
                    cython.cast(MapBuilder, step.builder).entries.append()
        if step.builder is not None:
            cython.cast(ListBuilder, step.builder).append()
        return True


def decode(step: Step, builder: Any, rows: Any, skip: int, only_first: bool) -> list[tuple[int, str, str]]:
    """Append a row for each of `rows` with the program `step`; return row, path and reason of values that do not fit.

    Such a value becomes null. If `skip` is not 0, that many bytes of each value are skipped, of which the first must
    be 0. With `only_first`, decoding stops at the first value that does not fit, and the builder is unusable.
    """
    return _decode(step, builder, rows, skip, only_first)


def _decode(step: Step, builder: Builder, rows: ByteRows, skip: int, only_first: bool) -> list[Any]:
    reader = Reader()
    header = Step(SKIP_FIXED, "")
    bad = []
    for row in range(rows.length):
        if rows.is_null(row):
            builder.append_null()
            continue
        reader.data = rows.data
        reader.empty_items = 0
        reader.at = rows.start(row)
        reader.end = rows.end(row)
        if skip == 0 or (reader.end - reader.at >= skip and reader.data[reader.at] == 0):
            reader.at += skip
            fits = reader.read(step)
        else:
            fits = reader._fail(header, HEADER)  # noqa: SLF001
        if not fits:
            bad.append((row, reader.failed.path, REASONS[reader.reason]))
            if only_first:
                break
            builder.truncate(row)
            builder.append_null()
    return bad


def check(step: Step, data: Any, places: Any, schema_id: int, rows: range, skip: int) -> list[tuple[int, str, str]]:
    """Check values with the program `step`, whose steps have no builders; return row, path and reason of invalid ones.

    `places` has three columns of 64-bit integers: the schema id, the start and the end of each value in `data`. The
    values of `rows`, whose step is 1, are checked if they have this id, without their first `skip` bytes. A value must
    end where its last field does.
    """
    return _check(step, Held(data), Held(places), schema_id, rows, skip)


def _check(step: Step, data: Held, places: Held, schema_id: int, rows: range, skip: int) -> list[Any]:
    reader = Reader()
    reader.data = data.bytes
    count = places.size // 24
    first = rows.start
    last = rows.stop
    if first < 0 or last > count:
        raise IndexError(f"{first}:{last} is not within {count} rows")
    bad = []
    for row in range(first, last):
        if places.int64s[row] != schema_id:
            continue
        reader.at = places.int64s[count + row] + skip
        reader.end = places.int64s[2 * count + row]
        if reader.at < skip or reader.at > reader.end or reader.end > data.size:
            raise IndexError(f"the value of row {row} is not within the data")
        reader.empty_items = 0
        reader.depth = 0
        fits = reader.read(step)
        if fits and reader.at != reader.end:
            fits = reader._fail(step, REST)  # noqa: SLF001
        if not fits:
            bad.append((row, reader.failed.path, REASONS[reader.reason]))
    return bad
