"""Avro values against fastavro, in both directions, with generated schemas and values, compiled and as plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import uuid
from types import ModuleType, SimpleNamespace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.clients.arrow_columns import array_of, plan_of
from ottla.serde import _views, avro, avro_writing
from ottla.serde.avro_schema import AvroSchemaError, Node, parse
from tests.unit.serde.plain import plain


def _kernels(views: ModuleType, reading: ModuleType, writing: ModuleType) -> SimpleNamespace:
    return SimpleNamespace(
        ByteRows=views.ByteRows,
        ColumnView=views.ColumnView,
        AvroDecoder=reading.AvroDecoder,
        AvroEncoder=writing.AvroEncoder,
    )


BUILT = _kernels(_views, avro, avro_writing)
BOTH = [BUILT, _kernels(plain("_views"), plain("avro"), plain("avro_writing"))]
both = pytest.mark.parametrize("kernels", BOTH, ids=["built", "plain"])
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp
decimal.getcontext().prec = 60

# -- from types to Arrow, and buffers ---------------------------------------------------------------------------------


def arrow(plan: Any) -> Any:
    """Return the Arrow type of a plan."""
    kind = plan[0]
    if kind == "struct":
        return pa.struct([(name, arrow(child)) for name, child in plan[1]])
    if kind == "list":
        return pa.list_(arrow(plan[1]))
    if kind == "map":
        return pa.map_(pa.string(), arrow(plan[2]))
    if kind == "decimal128":
        return pa.decimal128(plan[1], plan[2])
    if kind == "timestamp_us":
        return pa.timestamp("us", "UTC" if plan[1] else None)
    return {"float32": pa.float32(), "float64": pa.float64(), "bool": pa.bool_(), "date32": pa.date32()}.get(
        kind
    ) or getattr(pa, kind)()


def decode(kernels: Any, decoder: Any, values: list[bytes | None], only_first: bool = False) -> tuple[Any, list[Any]]:
    """Decode values; return the array and the values that did not fit."""
    array = pa.array([b"before", *values], pa.binary())[1:]
    validity, offsets, data = array.buffers()
    rows = kernels.ByteRows(len(array), array.offset, validity, offsets, data, False)
    column, bad = decoder.decode(rows, only_first)
    found = None if column is None else array_of(arrow(decoder.plan), column)
    if found is not None:
        found.validate(full=True)
    return found, bad


def view(kernels: Any, array: Any) -> Any:
    """As `ottla.clients.arrow_columns.view_of`, with these kernels."""
    kind, children = array.type, []
    if pa.types.is_struct(kind):
        children = [view(kernels, array.field(i)) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [view(kernels, array.keys), view(kernels, array.items)]
    elif pa.types.is_list(kind):
        children = [view(kernels, array.values)]
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2 if children else None]
    return kernels.ColumnView(len(array), array.offset, own, children, False)


def encode(kernels: Any, schema: Node, array: Any) -> tuple[list[bytes | None] | None, Any]:
    """Encode an array's rows; return the values, or the first row that does not fit."""
    column, bad = kernels.AvroEncoder(schema, plan_of(array.type)).encode(view(kernels, array))
    return (None if column is None else array_of(pa.binary(), column).to_pylist()), bad


# -- schemas and values -----------------------------------------------------------------------------------------------

LEAVES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=20)),
    "bytes": ("bytes", st.binary(max_size=20)),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        st.datetimes(timezones=st.just(dt.UTC)).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(dt.UTC))),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    "money": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda unscaled: decimal.Decimal(unscaled).scaleb(-3)),
    ),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 3, union: bool = True) -> tuple[Any, st.SearchStrategy[Any]]:
    """Draw a schema and a strategy for its values, as fastavro takes them."""
    kinds = ["leaf", "enum", "fixed", "decimal"]
    kinds += ["record", "array", "map", *(["union", "optional"] if union else [])] if depth else []
    kind = draw(st.sampled_from(kinds))
    name = f"n{draw(st.uuids()).hex}"
    if kind == "leaf":
        return LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "Bb", "C"]}, st.sampled_from(["A", "Bb", "C"])
    if kind == "fixed":
        size = draw(st.integers(0, 20))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "decimal":
        schema = {"type": "fixed", "name": name, "size": 17, "logicalType": "decimal", "precision": 38, "scale": 10}
        return schema, st.integers(-(10**38) + 1, 10**38 - 1).map(lambda value: decimal.Decimal(value).scaleb(-10))
    if kind == "record":
        fields = draw(st.lists(types(depth=depth - 1), min_size=1, max_size=4))
        schema = {"type": "record", "name": name, "fields": [_field(i, each[0]) for i, each in enumerate(fields)]}
        return schema, st.fixed_dictionaries({f"f{i}": each[1] for i, each in enumerate(fields)})
    below, values = draw(types(depth=depth - 1, union=kind in ("array", "map")))
    if kind == "array":
        return {"type": "array", "items": below}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": below}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    if kind == "optional":
        return draw(st.sampled_from([["null", below], [below, "null"]])), st.none() | values
    wrapped = {"type": "record", "name": name, "fields": [_field(0, below)]}
    members = ["string", "null", wrapped, "long"]
    return members, st.none() | st.text(max_size=4) | st.integers(-9, 9) | st.fixed_dictionaries({"f0": values})


def _field(number: int, schema: Any) -> dict[str, Any]:
    return {"name": f"f{number}", "type": schema}


def expected(node: Node, value: Any) -> Any:
    """Return pyarrow's form of a value that fastavro has written."""
    if node.kind == "union":
        branches = node.non_null()
        if value is None:
            return None
        if len(branches) == 1:
            return expected(branches[0], value)
        at = 0 if isinstance(value, str) else 1 if isinstance(value, dict) else 2
        return {f"member{i}": expected(each, value) if i == at else None for i, each in enumerate(branches)}
    if node.kind == "record":
        return {each.name: expected(each.node, value[each.name]) for each in node.fields}
    if node.kind == "array":
        assert node.items is not None
        return [expected(node.items, each) for each in value]
    if node.kind == "map":
        assert node.items is not None
        return [(key, expected(node.items, each)) for key, each in value.items()]
    return str(value) if isinstance(value, uuid.UUID) else value


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Draw a schema's text and values."""
    schema, values = draw(types())
    return json.dumps(schema), draw(st.lists(values, max_size=6))


def written(schema: str, value: Any) -> bytes:
    """Encode a value with fastavro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


# -- both directions --------------------------------------------------------------------------------------------------


@both
@quick
@given(cases())
def test_values_written_by_fastavro_are_decoded(kernels: Any, case: tuple[str, list[Any]]) -> None:
    schema, values = case
    node = parse(schema)
    raw = [None, *(written(schema, value) for value in values), None]
    array, bad = decode(kernels, kernels.AvroDecoder(node), raw)
    assert bad == []
    assert array.to_pylist() == [None, *(expected(node, value) for value in values), None]


@both
@quick
@given(cases())
def test_encoded_values_equal_the_values_of_fastavro(kernels: Any, case: tuple[str, list[Any]]) -> None:
    schema, values = case
    node = parse(schema)
    rows = [expected(node, value) for value in values]
    array = pa.array([rows[0] if rows else None, *rows], arrow(avro.plan(node)))[1:]
    raw, bad = encode(kernels, node, array)
    assert bad is None
    # A null row has no bytes, even if the schema allows null.
    assert raw == [None if value is None else written(schema, value) for value in values]


@both
@quick
@given(cases(), st.data())
def test_truncated_or_corrupted_values_are_reported_and_others_decoded(
    kernels: Any, case: tuple[str, list[Any]], data: st.DataObject
) -> None:
    schema, values = case
    node = parse(schema)
    raw: list[bytes | None] = []
    for value in values:
        good = written(schema, value)
        corrupted = bytearray(good[: data.draw(st.integers(0, len(good)))])
        if corrupted and data.draw(st.booleans()):
            corrupted[data.draw(st.integers(0, len(corrupted) - 1))] = data.draw(st.integers(0, 255))
        raw += [good, bytes(corrupted), data.draw(st.binary(max_size=30))]
    array, bad = decode(kernels, kernels.AvroDecoder(node), raw)
    rows = array.to_pylist() if "timestamp" not in schema and "date" not in schema else [None] * 0
    for i, value in enumerate(values[: len(rows)]):
        assert rows[3 * i] == expected(node, value)
    assert all(not array[row].is_valid for row, _, _ in bad)
    assert all(each[0] % 3 for each in bad)
    if bad:
        assert decode(kernels, kernels.AvroDecoder(node), raw, only_first=True) == (None, bad[:1])


@quick
@given(cases(), st.lists(st.binary(max_size=40), max_size=5))
def test_both_kernels_agree_on_any_bytes(case: tuple[str, list[Any]], raw: list[bytes | None]) -> None:
    node = parse(case[0])
    built, plain_one = (decode(each, each.AvroDecoder(node), raw) for each in BOTH)
    assert built[1] == plain_one[1]
    assert built[0].equals(plain_one[0]) or "nan" in str(built[0])


# -- errors -----------------------------------------------------------------------------------------------------------

RECORD = (
    '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "in", "type": {"type": '
    '"record", "name": "S", "fields": [{"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}}, '
    '{"name": "notes", "type": ["null", {"type": "array", "items": "string"}]}]}}]}'
)
GOOD = {"id": 1, "in": {"kind": "B", "notes": ["x", "é"]}}


@both
@pytest.mark.parametrize(
    ("raw", "path", "reason"),
    [
        (b"", "id", "ends before"),
        (b"\xff" * 11, "id", "64 bits"),
        (b"\x80\x80\x80\x80\x10", "id", "does not fit its type"),
        (b"\x02\x04", "in.kind", "enum's symbols"),
        (b"\x02\x00\x04", "in.notes", "union's branches"),
        (b"\x02\x00\x02\x02\x04\xc3\x28\x00", "in.notes[]", "not UTF-8"),
        (b"\x02\x00\x02\x02\x01", "in.notes[]", "negative length"),
        (b"\x02\x00\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "in.notes", "ends before"),
        (b"\x02\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "in.notes", "ends before"),
    ],
)
def test_values_that_do_not_fit_are_reported_with_their_field(kernels: Any, raw: bytes, path: str, reason: str) -> None:
    good = written(RECORD, GOOD)
    array, bad = decode(kernels, kernels.AvroDecoder(parse(RECORD)), [good, raw, good])
    assert array.to_pylist() == [GOOD, None, GOOD]
    assert [(row, at) for row, at, _ in bad] == [(1, path)]
    assert reason in bad[0][2]


@both
def test_too_many_items_of_zero_bytes_are_rejected(kernels: Any) -> None:
    schema = parse('{"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}')
    array, bad = decode(kernels, kernels.AvroDecoder(schema), [b"\xfe\xff\xff\xff\x0f\x00", b"\x04\x00"])
    assert array.to_pylist() == [None, [b"", b""]]
    assert [each[0] for each in bad] == [0]


@both
def test_rows_that_cannot_be_encoded_are_reported_with_their_field(kernels: Any) -> None:
    rows = [GOOD, {"id": None, "in": {"kind": "A", "notes": None}}]
    kind = arrow(avro.plan(parse(RECORD)))
    assert encode(kernels, parse(RECORD), pa.array(rows, kind)) == (
        None, (1, "id", "is null, which the schema does not allow"),
    )  # fmt: skip
    rows[1] = {"id": 1, "in": {"kind": "C", "notes": None}}
    assert encode(kernels, parse(RECORD), pa.array(rows, kind))[1][:2] == (1, "in.kind")


def test_columns_that_differ_from_the_schema_are_rejected() -> None:
    schema = parse(RECORD)
    for kind, match in (
        (pa.struct([("id", pa.int32())]), "no column for 'in'"),
        (pa.struct([("id", pa.string()), ("in", pa.int32())]), "'id' is of type string"),
        (pa.struct([*arrow(avro.plan(schema)), ("more", pa.int32())]), "'more' is not in the schema"),
    ):
        with pytest.raises(AvroSchemaError, match=match):
            avro_writing.AvroEncoder(schema, plan_of(kind))


@both
def test_confluent_header_is_required_and_skipped(kernels: Any) -> None:
    good = written(RECORD, GOOD)
    decoder = kernels.AvroDecoder(parse(RECORD), header=avro.CONFLUENT_HEADER)
    array, bad = decode(kernels, decoder, [b"\x00\x00\x00\x00\x07" + good, good, b"\x00\x00", b""])
    assert array.to_pylist() == [GOOD, None, None, None]
    assert [row for row, _, reason in bad if "header" in reason] == [1, 2, 3]


# -- difficult schemas ------------------------------------------------------------------------------------------------


@both
def test_items_of_zero_bytes_are_counted_across_arrays_of_a_value(kernels: Any) -> None:
    schema = parse('{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": '
                   '{"type": "array", "items": "null"}}}, {"name": "b", "type": "int"}]}')  # fmt: skip
    reader = parse('{"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}')
    inner = bytes.fromhex("80ea30") + b"\0"  # 400,000 nulls
    values = [b"\x04" + inner * 2 + b"\0\x02", b"\x06" + inner * 3 + b"\0\x02", b"\x04" + inner * 2 + b"\0\x04"]
    array, bad = decode(kernels, kernels.AvroDecoder(schema, reader), values)
    assert array.to_pylist() == [{"b": 1}, None, {"b": 2}]
    assert [(row, path) for row, path, _ in bad] == [(1, "a[]")]


def test_nested_unions_of_renamed_records_are_resolved_once() -> None:
    def nested(namespace: str) -> Any:
        node: Any = "int"
        for depth in range(24):
            fields = [{"name": "x", "type": ["null", node] if depth else node}]
            node = {"type": "record", "name": f"R{depth}", "namespace": namespace, "fields": fields}
        return parse(json.dumps(node))

    decoder = avro.AvroDecoder(nested("old"), nested("new"))  # resolving each level twice would take 16 million steps
    array, bad = decode(BUILT, decoder, [b"\x02" * 24])
    assert bad == []
    assert str(array[0].as_py()).endswith("{'x': 1" + "}" * 24)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ('"float"', "1e39"), ('"double"', "1" + "0" * 400), ('"float"', "true"), ('"string"', '"\\ud800"'),
        ('{"type": "map", "values": "int"}', '{"\\ud800": 1}'), ('"bytes"', '"\\u0100"'), ('"int"', "2147483648"),
    ],
)  # fmt: skip
def test_defaults_that_do_not_fit_their_type_are_rejected(kind: str, default: str) -> None:
    written_with = parse('{"type": "record", "name": "R", "fields": []}')
    fields = f'[{{"name": "more", "type": {kind}, "default": {default}}}]'
    wanted = parse(f'{{"type": "record", "name": "R", "fields": {fields}}}')
    with pytest.raises(AvroSchemaError, match=r"'more' has the default .* which is not valid for"):
        avro.AvroDecoder(written_with, wanted)
