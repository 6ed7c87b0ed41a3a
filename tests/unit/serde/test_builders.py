"""Builders against pyarrow: the same rows, compiled and as plain Python."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.arrow_columns import array_of, plan_of
from ottla.serde import _builders as built
from ottla.serde import _views as built_views
from tests.unit.serde.plain import plain

MODULES = [built, plain("_builders")]
VIEWS = [built_views, plain("_views")]
NUMBERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
decimal.getcontext().prec = 60
slow = settings(deadline=None)


def rows_of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for rows of an Arrow type, including null."""
    if kind in NUMBERS:
        half = 1 << NUMBERS[kind] - 1
        value: st.SearchStrategy[Any] = st.integers(-half, half - 1)
    elif kind == pa.bool_():
        value = st.booleans()
    elif pa.types.is_floating(kind):
        value = st.floats(width=kind.bit_width, allow_nan=False)
    elif kind == pa.string():
        value = st.text(max_size=20)
    elif kind == pa.binary():
        value = st.binary(max_size=20)
    elif pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        value = st.integers(-largest, largest).map(lambda unscaled: decimal.Decimal(unscaled).scaleb(-kind.scale))
    elif pa.types.is_struct(kind):
        value = st.fixed_dictionaries({field.name: rows_of_type(field.type) for field in kind})
    elif pa.types.is_map(kind):
        value = st.lists(st.tuples(st.text(max_size=5), rows_of_type(kind.item_type)), max_size=3)
    else:
        value = st.lists(rows_of_type(kind.value_type), max_size=4)
    return st.none() | value


LEAVES = st.sampled_from(
    [*NUMBERS, pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.decimal128(9, 2), pa.decimal128(38)]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
        )
    ),
    max_leaves=5,
)


def append(builder: Any, kind: Any, row: Any) -> None:
    """Append a row given in pyarrow's form."""
    if row is None:
        builder.append_null()
    elif kind == pa.bool_():
        builder.append_bool(row)
    elif kind in NUMBERS:
        assert builder.append_int(row)
    elif pa.types.is_floating(kind):
        builder.append_float(row)
    elif pa.types.is_decimal(kind):
        assert builder.append_unscaled(int(row.scaleb(kind.scale)))
    elif kind in (pa.string(), pa.binary()):
        builder.append_value(row.encode() if isinstance(row, str) else row)
    elif pa.types.is_struct(kind):
        for child, field in zip(builder.children, kind, strict=True):
            append(child, field.type, row[field.name])
        builder.append()
    elif pa.types.is_map(kind):
        for key, value in row:
            append(builder.keys, pa.string(), key)
            append(builder.values, kind.item_type, value)
            builder.items.append()
        builder.append()
    else:
        for item in row:
            append(builder.items, kind.value_type, item)
        builder.append()


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Draw a type and rows of it."""
    kind = draw(TYPES)
    return kind, draw(st.lists(rows_of_type(kind), max_size=40))


@pytest.mark.parametrize("module", MODULES, ids=["built", "plain"])
class TestBuilders:
    @slow
    @given(columns())
    def test_built_array_equals_the_pyarrow_array(self, module: Any, column: tuple[Any, list[Any]]) -> None:
        kind, rows = column
        builder = module.builder(plan_of(kind))
        for row in rows:
            append(builder, kind, row)
        array = array_of(kind, builder.finish())
        array.validate(full=True)
        assert array.equals(pa.array(rows, kind))

    @slow
    @given(columns(), st.data())
    def test_truncated_rows_leave_no_trace(
        self, module: Any, column: tuple[Any, list[Any]], data: st.DataObject
    ) -> None:
        kind, rows = column
        builder = module.builder(plan_of(kind))
        kept: list[Any] = []
        for row in rows:
            append(builder, kind, row)
            kept.append(row)
            if data.draw(st.booleans()):
                length = data.draw(st.integers(0, len(kept)))
                builder.truncate(length)
                del kept[length:]
        array = array_of(kind, builder.finish())
        array.validate(full=True)
        assert array.equals(pa.array(kept, kind))

    def test_truncate_removes_children_of_an_unclosed_struct_row(self, module: Any) -> None:
        kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", pa.bool_())])
        builder = module.builder(plan_of(kind))
        append(builder, kind, {"a": 1, "b": ["x"], "c": None})
        builder.children[0].append_int(2)
        builder.children[1].items.append_value(b"lost")
        builder.truncate(1)
        append(builder, kind, {"a": 3, "b": ["y", None], "c": True})
        array = array_of(kind, builder.finish())
        array.validate(full=True)
        assert array.to_pylist() == [{"a": 1, "b": ["x"], "c": None}, {"a": 3, "b": ["y", None], "c": True}]

    def test_numbers_too_large_for_the_type_are_not_appended(self, module: Any) -> None:
        for kind, bits in NUMBERS.items():
            builder = module.builder(plan_of(kind))
            if bits < 64:
                assert not builder.append_int(1 << bits - 1)
                assert not builder.append_int(-(1 << bits - 1) - 1)
            assert builder.length == 0
        money = module.builder(("decimal128", 3, 1))
        assert not money.append_unscaled(1000)
        assert money.append_unscaled(-999)


@pytest.mark.parametrize("module", VIEWS, ids=["built", "plain"])
class TestViews:
    @slow
    @given(st.binary(max_size=12) | st.text(max_size=4).map(str.encode))
    def test_utf8_check_agrees_with_python(self, module: Any, value: bytes) -> None:
        try:
            value.decode()
        except UnicodeDecodeError:
            assert not module.check_utf8(value)
        else:
            assert module.check_utf8(value)

    def test_rows_outside_the_data_are_rejected(self, module: Any) -> None:
        def offsets(*values: int) -> bytes:
            return b"".join(value.to_bytes(4, "little", signed=True) for value in values)

        assert module.ByteRows(2, 0, None, offsets(0, 1, 3), b"abc", False).length == 2
        for wrong in (offsets(0, 1), offsets(0, 1, 4), offsets(0, 2, 1), offsets(-1, 0, 1)):
            with pytest.raises(ValueError, match="column"):
                module.ByteRows(2, 0, None, wrong, b"abc", False)
