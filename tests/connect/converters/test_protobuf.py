"""The protobuf converter writes Confluent's schemas and bytes and reads them as Confluent's does."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.serializers.base import InvalidValue, References
from ottla.clients.serializers.protobuf import parsed, path_of
from ottla.connect import data
from ottla.connect.converters.protobuf import ProtobufConverter
from ottla.connect.converters.protobuf_names import ENUM, TAG, TYPE, UNION, map_entry, map_field, scrubbed
from ottla.connect.converters.protobuf_schemas import ProtobufOptions, ProtobufSchemaWriter
from ottla.connect.converters.protobuf_values import ProtobufEncoder
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError, RetriableError
from ottla.registry_client import RegistryClient
from ottla.schemas.model import Schema as RegistrySchema
from ottla.schemas.model import SchemaType
from tests.connect.converters.json_text import TEXT, L, ask, of
from tests.connect.converters.test_avro import ROW, VALUES, WRITTEN

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"optional.for.nullables": "true"},
    {"wrapper.for.nullables": "true"},
    {"scrub.invalid.names": "true"},
    {"enhanced.protobuf.schema.support": "true"},
    {"wrapper.for.raw.primitives": "false"},
    {"optional.for.proto2": "false"},
)
COLORS = {ENUM: "Color", f"{ENUM}.RED": "0", f"{ENUM}.BLUE": "7"}
COLOR = of("string", "e", name="Color", optional=True, parameters=COLORS)
IN = of("struct", name="In", fields=[of("float", "f")])
CHOICE = of(
    "struct",
    "choice_0",
    name=f"{UNION}.choice",
    optional=True,
    fields=[
        of("int32", "a", optional=True, parameters={TAG: "13"}),
        of("string", "b", optional=True, parameters={TAG: "14"}),
        of("struct", "c", name="C", optional=True, parameters={TAG: "15"}, fields=[of("int64", "z")]),
    ],
)
SUM = of("struct", name="p.S", fields=[COLOR, CHOICE, of("int32", "after")])
PRICE = of("bytes", "price", name=f"{L}Decimal", version=1, parameters={"scale": "3", "connect.decimal.precision": "9"})
MANY = of(
    "struct",
    name="p.M",
    fields=[
        of("array", "es", items=COLOR, optional=True),
        of("map", "my_map", name="my_map", keys=of("string"), values=IN),
        of("int32", "si", parameters={TYPE: "sint32"}),
        of("int64", "u32", parameters={TYPE: "uint32"}),
        of("int64", "u64", parameters={TYPE: "fixed64"}, optional=True),
        of("int64", "tagged", parameters={TAG: "99"}),
        of("int32", "last"),
        of("struct", "In", name="In", fields=[of("int32", "q")]),
        of("array", "days", items=of("int32", name=f"{L}Date", version=1)),
        of("array", "texts", items=of("string", optional=True)),
        {**PRICE, "optional": True},
        of("array", "prices", items=PRICE, optional=True),
        of("string", "with_default", optional=True, default="x"),
    ],
)
MANY_VALUES = {
    "es": ["RED", "BLUE"],
    "my_map": {"a": {"f": 1.5}},
    "si": -5,
    "u32": 4_294_967_295,
    "u64": -1,
    "tagged": 1,
    "last": 2,
    "In": {"q": 3},
    "days": [0, -1, 20_000],
    "texts": ["a", ""],
    "price": "MDk=",
    "prices": ["AA==", "/w=="],
    "with_default": None,
}
INVALID_NAMES = of(
    "struct",
    name="a-b.c d.1x",
    fields=[of("int32", "_x"), of("int32", "ä b"), of("struct", "q~", name="w.1", fields=[of("int32", "z*")])],
)
# The same name in a message is the same type. The message's own name is, too.
NESTED = of(
    "struct",
    name="A",
    fields=[
        of("struct", "b", name="B", fields=[of("struct", "c", name="A", fields=[of("int32", "x")])]),
        of("struct", "A", name="A", fields=[of("int32", "x")]),
    ],
)
WITHOUT_NULLS = {**VALUES, "many": [{"x": 1}]}
CASES: tuple[tuple[dict[str, Any], Any], ...] = (
    # Java writes the bytes of a whole logical value with another schema, and cannot read them.
    *(each for each in WRITTEN if each[0]["type"] == "struct" or not str(each[0].get("name")).startswith(L)),
    (ROW, WITHOUT_NULLS),
    (ROW, {**WITHOUT_NULLS, "one": None, "micro": None, "i16": None, "many": [], "m": {"a": 0, "b": None}}),
    (SUM, {"e": "BLUE", "choice_0": {"b": ""}, "after": 3}),
    (SUM, {"e": None, "choice_0": {"a": 5}, "after": 0}),
    (SUM, {"e": "RED", "choice_0": None, "after": 0}),
    (SUM, {"e": "RED", "choice_0": {"c": {"z": 9}}, "after": 0}),
    (MANY, MANY_VALUES),
    (MANY, {**MANY_VALUES, "with_default": "q", "u64": None, "price": None, "prices": None}),
    (INVALID_NAMES, {"_x": 1, "ä b": 2, "q~": {"z*": 3}}),
    (NESTED, {"b": {"c": {"x": 1}}, "A": {"x": 2}}),
)
PROTO3 = """syntax = "proto3";
package q.w;
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/type/decimal.proto";
import "confluent/meta.proto";
message A {
  int32 i32 = 1; sint32 s32 = 2; sfixed32 sf32 = 3; uint32 u32 = 4; fixed32 f32 = 5; int64 i64 = 6; uint64 u64 = 7;
  sint64 s64 = 8; fixed64 f64 = 9; sfixed64 sf64 = 10; float f = 11; double d = 12; bool b = 13; string s = 14;
  bytes y = 15; Kind kind = 16; Inner inner = 17; repeated Inner inners = 18; map<string, int32> m1 = 19;
  map<int64, Inner> m2 = 20; optional int32 oi = 21; optional Inner oinner = 22; optional Kind ok = 23;
  oneof first {
    int32 x = 24; string yy = 25; Inner z = 26; google.protobuf.Int64Value w = 27; Kind k2 = 28;
    google.protobuf.Timestamp ts2 = 44;
  }
  oneof second_one { bool only = 29; }
  google.protobuf.Int32Value wi = 30; google.protobuf.StringValue ws = 31; google.protobuf.UInt64Value wu = 32;
  google.protobuf.BytesValue wb = 33; repeated google.protobuf.BoolValue wl = 34;
  google.protobuf.UInt32Value wu32 = 43; map<string, google.protobuf.FloatValue> mw = 45;
  google.protobuf.Timestamp ts = 35; google.type.Date date = 36; google.type.TimeOfDay tod = 37;
  repeated google.protobuf.Timestamp tss = 39; repeated Kind kinds = 40;
  int32 short = 41 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int16"}]}];
  repeated int32 sl = 42 [(confluent.field_meta) = {params: [{key: "connect.type", value: "int8"}]}];
  confluent.type.Decimal dec = 46
      [(confluent.field_meta) = {params: [{key: "precision", value: "5"}, {key: "scale", value: "2"}]}];
  enum Kind { ZERO = 0; ONE = 1; NEG = -1; }
  message Inner { string name = 1; Deep deep = 2; message Deep { int64 n = 1; repeated Deeper ds = 2; } }
  message Deeper { bool t = 1; }
}
"""
FULL = r"""i32: -3 s32: -4 sf32: -5 u32: 4000000000 f32: 4000000001 i64: -6 u64: 18446744073709551615 s64: -7
    f64: 18446744073709551614 sf64: -8 f: 1.5 d: 2.5 b: true s: "h" y: "\001\377" kind: ONE
    inner { name: "n" deep { n: 5 ds { t: true } ds {} } } inners {} inners { name: "q" } m1 { key: "a" value: 0 }
    m2 { key: 5 value { name: "z" } } oi: 0 oinner {} ok: ZERO x: 0 only: false wi {} ws { value: "w" }
    wu { value: 18446744073709551615 } wb {} wl {} wl { value: true } wu32 { value: 4000000000 }
    mw { key: "m" value {} } ts { seconds: -1 nanos: 5000000 } date { year: 2020 month: 2 day: 29 }
    tod { hours: 23 minutes: 59 seconds: 59 nanos: 999999999 } tss {} tss { seconds: 10 } kinds: ZERO kinds: NEG
    short: 70000 sl: 300 sl: -129 dec { value: "\001\342\100" precision: 6 scale: 2 }"""
MESSAGES = (
    "", FULL, 'yy: ""', "z {}", "w {}", "k2: ONE", "w { value: 4 }", "ts2 { seconds: 4 }", "kind: 77",
)  # fmt: skip
PROTO2 = """syntax = "proto2";
message A {
  required int32 r = 1; optional int32 o = 2; optional string od = 3 [default = "dd"]; repeated int32 l = 4;
  optional B b = 5; required B rb = 6; optional K k = 7; optional K kd = 8 [default = Y];
  oneof u { int32 ua = 9; B ub = 10; }
  message B { optional bytes z = 1; }
  enum K { X = 5; Y = 6; }
}
message Second { optional A.B b = 1; optional A.K k = 2; }
"""
READ: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (PROTO3, "q.w.A", MESSAGES),
    (PROTO3, "q.w.A.Inner.Deep", ("n: 5",)),
    (PROTO2, "A", ("r: 1 rb {}", 'r: 1 o: 0 od: "" l: 1 l: 2 b { z: "q" } rb {} k: Y kd: X ub {}')),
    (PROTO2, "Second", ("", "k: X b {}")),
)


def schema_of(text: str) -> Any:
    return parsed(References(RegistrySchema(SchemaType.PROTOBUF, text), {}))


def body_of(text: str, name: str, message: str) -> bytes:
    schema = schema_of(text)
    made = text_format.Parse(message, schema.message_class(name)())
    return path_of(schema.message_indexes(name)) + made.SerializeToString()


def converter(url: str = "http://127.0.0.1:1", config: Mapping[str, str] | None = None) -> ProtobufConverter:
    made = ProtobufConverter()
    made.configure({"schema.registry.url": url, **(config or {})}, is_key=False)
    return made


def options_of(config: Mapping[str, str]) -> ProtobufOptions:
    return ProtobufOptions(**{name.replace(".", "_"): value == "true" for name, value in config.items()})


def own(schema: Schema, value: Any, options: ProtobufOptions) -> tuple[str, bytes]:
    text, name = ProtobufSchemaWriter(options).written(schema)
    parsed_schema = schema_of(text)
    message = ProtobufEncoder(options).encoder(schema, parsed_schema.message_class(name))(value)
    return text, path_of(parsed_schema.message_indexes(name)) + message.SerializeToString()


def without_old_option(text: str) -> str:
    """The text of a newer release: release 7 writes `deprecated = false` for members of a oneof."""

    def list_of_one(found: re.Match[str]) -> str:
        return "[" + re.sub(r"(?m)^  ", "", found[1]).lstrip() + "]"

    text = re.sub(r"\[\n\s+deprecated = false,\n\s+(\(confluent[^\]]*\]\n[^\]]*)\n\s+\]", list_of_one, text)
    return text.replace(" [deprecated = false]", "")


@pytest.mark.jvm
def test_schemas_and_bytes_are_confluents() -> None:
    # Release 7 cannot write an oneof beside optional fields, and wraps its members.
    cases = [
        (config, json.dumps({"schema": schema, "payload": value}))
        for config in SETTINGS
        for schema, value in CASES
        if schema is not SUM or not {"optional.for.nullables", "wrapper.for.nullables"} & config.keys()
    ]
    written = 0
    answers = ask([{"converter": "protobuf", "config": config, "json": text} for config, text in cases])
    for (config, text), answer in zip(cases, answers, strict=True):
        schema, value = TEXT.to_connect("t", text.encode())
        assert schema is not None
        if "error" in answer:
            with pytest.raises((DataError, ValueError)):
                own(schema, value, options_of(config))
        elif answer["body"] is not None:
            found, body = own(schema, value, options_of(config))
            assert found == without_old_option(answer["schema"]), (config, text)
            assert body == base64.b64decode(answer["body"]), (config, text)
            written += 1
    assert written > 100


def comparable(node: Any) -> Any:
    """Without the version in the registry, and the number that Java leaves to the items of an array from a field."""
    if isinstance(node, list):
        return [comparable(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: comparable(each) for name, each in node.items()}
    if node.get("type") == "struct":
        found.pop("version", None)
    items = found.get("items")
    if isinstance(items, dict) and "parameters" in items:
        items["parameters"].pop(TAG, None)
        if not items["parameters"]:
            del items["parameters"]
    return found


@pytest.mark.jvm
def test_messages_are_read_as_by_confluent() -> None:
    questions = [
        {
            "converter": "protobuf",
            "config": config,
            "schema": text,
            "body": base64.b64encode(body_of(text, name, message)).decode(),
        }
        for config in SETTINGS
        # Release 7 has required members of oneofs with these settings, and cannot read them.
        if not {"optional.for.nullables", "wrapper.for.nullables"} & config.keys()
        for text, name, messages in READ
        for message in messages
    ]
    for question, answer in zip(questions, ask(questions), strict=True):
        found = converter(config=question["config"]).reader_of(question["schema"])(
            base64.b64decode(question["body"]), 0
        )
        if "error" in answer:
            with pytest.raises(DataError):
                TEXT.from_connect("t", found.schema, found.value)
            continue
        text = TEXT.from_connect("t", found.schema, found.value)
        assert text is not None
        assert comparable(json.loads(text)) == comparable(json.loads(answer["json"])), question


def test_names_are_changed_as_by_confluent() -> None:
    assert [scrubbed(each) for each in ("ok_1", "_x", "1x", "a-b", "ä b", "q~", "z*", "")] == [
        "ok_1", "x_x", "x1x", "a_b", "_C3_A4_b", "q_7E", "z_", "",
    ]  # fmt: skip
    assert [map_entry(each) for each in ("my_map", "Map", "m1")] == ["MyMapEntry", "MapEntry", "m1Entry"]
    assert [map_field(each) for each in ("MyMapEntry", "a.b.ConnectDefault2Entry", "X")] == [
        "my_map", "a.b.connect_default2", "X",
    ]  # fmt: skip


def _values(schema: Schema) -> st.SearchStrategy[Any]:
    made = _required_values(schema)
    return st.none() | made if schema.optional else made


def _required_values(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.name == data.DECIMAL:
        scale = int(schema.parameters["scale"])
        return st.integers(-(10**30), 10**30).map(lambda number: Decimal(number).scaleb(-scale))
    if schema.name == data.DATE:
        return st.dates()
    if schema.name == data.TIME:
        return st.times().map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
    if schema.name == data.TIMESTAMP:
        moments = st.datetimes(timezones=st.just(UTC))
        return moments.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
    if schema.type is Type.STRUCT:
        fields = {each.name: _values(each.schema) for each in schema.fields}
        if schema.name is not None and schema.name.startswith(UNION):
            return st.one_of([st.fixed_dictionaries({name: each.filter(_present)}) for name, each in fields.items()])
        return st.fixed_dictionaries(fields)
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return st.lists(_required_values(schema.value_schema), max_size=3)
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return st.dictionaries(_required_values(schema.key_schema), _required_values(schema.value_schema), max_size=3)
    if ENUM in schema.parameters:
        return st.sampled_from(["RED", "BLUE"])
    return _SCALARS[schema.type]


def _present(value: Any) -> bool:
    return value is not None


_SCALARS: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT8: st.integers(-128, 127),
    Type.INT16: st.integers(-(2**15), 2**15 - 1),
    Type.INT32: st.integers(-(2**31), 2**31 - 1),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT32: st.floats(width=32, allow_nan=False),
    Type.FLOAT64: st.floats(allow_nan=False),
    Type.BOOLEAN: st.booleans(),
    Type.STRING: st.text(max_size=5),
    Type.BYTES: st.binary(max_size=5),
}
_LEAVES = [
    *(Schema(each) for each in _SCALARS),
    *(Schema(each, optional=True) for each in _SCALARS),
    *(data.decimal(2, optional=True), data.date(), data.time_of_day(), data.timestamp(optional=True)),
    Schema(Type.STRING, name="Color", optional=True, parameters=COLORS),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2, name: str = "S") -> Schema:
    leaves = st.sampled_from(_LEAVES)
    fields: list[Field] = []
    for index in range(draw(st.integers(1, 5))):
        # A name means the same type in all of a message.
        items = leaves if depth == 0 else leaves | schemas(depth - 1, f"{name}x{index}")
        kind = draw(st.sampled_from(["item", "array", "map", "union"]))
        if kind == "item":
            made = draw(items)
        elif kind == "array":
            made = data.array(draw(items), optional=draw(st.booleans()))
        elif kind == "map":
            keys = st.sampled_from([data.STRING, data.INT32, data.INT64])
            made = data.mapping(draw(keys), draw(items.filter(lambda each: not each.optional)))
        else:
            members = draw(st.lists(leaves, min_size=1, max_size=3))
            made = data.struct(
                [
                    Field(f"u{index}_{place}", _with_tag(each.as_optional(), 100 + 10 * index + place))
                    for place, each in enumerate(members)
                ],
                f"{UNION}.choice{index}",
                optional=True,
            )
        fields.append(Field(f"choice{index}_{_unions(fields)}" if kind == "union" else f"f{index}", made))
    return data.struct(fields, name, optional=depth < 2 and draw(st.booleans()))


def _unions(fields: list[Field]) -> int:
    return sum((each.schema.name or "").startswith(UNION) for each in fields)


def _with_tag(schema: Schema, number: int) -> Schema:
    from dataclasses import replace

    return replace(schema, parameters={**schema.parameters, TAG: str(number)})


def _same(schema: Schema, written: Any, found: Any) -> None:
    """Whether a value was read as it was written: an absent array is an empty one."""
    if schema.type is Type.STRUCT and written is not None:
        for field in schema.fields:
            _same(field.schema, written.get(field.name), found.get(field.name))
    elif schema.type in {Type.ARRAY, Type.MAP}:
        assert schema.value_schema is not None
        pairs = (
            zip(written or [], found, strict=True)
            if schema.type is Type.ARRAY
            else zip((written or {}).values(), [found[key] for key in written or {}], strict=True)
        )
        for first, second in pairs:
            _same(schema.value_schema, first, second)
        assert len(found) == len(written or ())
    elif written is None and schema.type is Type.STRING and ENUM in schema.parameters:
        assert found in {None, "RED"}
    else:
        assert found == written, schema


READERS = {name: converter(config={name: "true"}) for name in ("optional.for.nullables", "wrapper.for.nullables")}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_written_is_read(drawn: st.DataObject) -> None:
    schema = drawn.draw(schemas())
    value = drawn.draw(_required_values(schema))
    setting = drawn.draw(st.sampled_from(sorted(READERS)))
    config = {setting: "true"}
    text, body = own(schema, value, options_of(config))
    read = READERS[setting].reader_of(text)
    found = read(body, 0)
    _same(schema, value, found.value)
    # Items of arrays are optional when they are read, so they may be wrapped when they are written again.
    again, second_body = own(found.schema, found.value, options_of(config))
    assert READERS[setting].reader_of(again)(second_body, 0).value == found.value, again


@given(st.binary(max_size=60), st.sampled_from([PROTO3, PROTO2]))
def test_any_bytes_are_read_or_refused(body: bytes, text: str) -> None:
    made = converter()
    read = made.reader_of(text)
    try:
        read(b"\0" + body, 0)
    except ValueError as error:
        assert type(error).__name__ == "InvalidValue"  # noqa: PT017


HOSTILE = (
    (r'dec { value: "\001" scale: 2147483647 }', "too large"),
    (r'dec { value: "\001" scale: -2147483648 }', "too large"),
    ("date { year: 2021 month: 2 day: 29 }", "no date 2021-2-29"),
    ("date { year: 2147483647 month: 1 day: 1 }", "no date"),
    ("tod { hours: 24 }", "from 0 to 23"),
    ("tod { nanos: -1 }", "from 0 to 999999999"),
    ("ts { seconds: 9223372036854775807 }", "no time"),
    ("ts { nanos: 1000000000 }", "nanoseconds"),
)


@pytest.mark.parametrize(("message", "reason"), HOSTILE)
def test_hostile_logical_values_are_refused(message: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        converter().reader_of(PROTO3)(body_of(PROTO3, "q.w.A", message), 0)


def test_decimal_is_rounded_to_its_precision() -> None:
    body = body_of(PROTO3, "q.w.A", r'dec { value: "\001\342\100" precision: 2 scale: 2 }')
    assert converter().reader_of(PROTO3)(body, 0).value["dec"] == Decimal("1.2E+3")


def test_decimal_of_many_bytes_is_refused() -> None:
    schema = schema_of(PROTO3)
    made = schema.message_class("q.w.A")()
    made.dec.value = b"\1" * 100_000
    with pytest.raises(ValueError, match="100000 bytes is too large"):
        converter().reader_of(PROTO3)(b"\0" + made.SerializeToString(), 0)


def test_message_that_contains_itself_is_refused() -> None:
    text = 'syntax = "proto3"; message L { L next = 1; }'
    with pytest.raises(ValueError, match="contains itself"):
        converter().reader_of(text)(b"\0", 0)


def chain_of(levels: int, fields: str) -> str:
    """The text of messages of which each has fields of the next one, `N`."""
    messages = (f"message M{each} {{ {fields.replace('N', f'M{each + 1}')} }}" for each in range(levels))
    return f'syntax = "proto3"; {" ".join(messages)} message M{levels} {{ int32 x = 1; }}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (chain_of(40, "N a = 1; N b = 2;"), "more than 50000 fields"),
        (chain_of(40, "map<string, N> a = 1; N b = 2;"), "more than 50000 fields"),
        (chain_of(40, "oneof u { N a = 1; N b = 2; }"), "more than 50000 fields"),
        (chain_of(400, "N a = 1;"), "nested more than 100 deep"),
    ],
)
def test_schema_that_unfolds_to_too_much_is_refused_each_time(text: str, reason: str) -> None:
    read = converter().reader_of(text)
    for _ in range(2):
        with pytest.raises(InvalidValue, match=reason):
            read(b"\0", 0)


def test_schema_of_shared_messages_is_linear() -> None:
    text = chain_of(10, "N a = 1; N b = 2;")
    found = converter().reader_of(text)(b"\0", 0)
    assert found.value == {"a": None, "b": None}
    assert hash(found.schema) == hash(found.schema)


UNWRITABLE = (
    (data.array(data.STRING), ["a"], "cannot be of type ARRAY"),
    (data.mapping(data.STRING, data.STRING), {}, "cannot be of type MAP"),
    (data.timestamp(), datetime(2020, 1, 1, tzinfo=UTC), "Timestamp in protobuf"),
    (data.struct({"a": data.array(data.array(data.STRING))}, "S"), {"a": []}, "array of arrays"),
    (data.struct({"a-b": data.STRING}, "S"), {"a-b": ""}, "cannot be written in protobuf"),
    (data.struct({"a": data.array(data.OPTIONAL_STRING)}, "S"), {"a": [None]}, "cannot have a null"),
    (data.struct({"a": data.INT32}, "S"), {"a": "text"}, "Invalid value of field 'a'"),
    (data.struct({"a": data.INT32}, "S"), {"a": 1 << 31}, "Invalid value of field 'a'"),
    (data.struct({"a": data.STRING}, "S"), {"a": "\ud800"}, "Invalid value of field 'a'"),
    (data.struct({"a": data.STRING}, "S"), "text", "Invalid type for STRUCT"),
    (data.struct({"a": data.decimal(1)}, "S"), {"a": Decimal("1.23")}, "does not fit"),
    (data.struct({"a": data.date()}, "S"), {"a": 5}, "Invalid type for Date"),
    (data.struct({"a": data.struct({"b": data.INT32}, f"{UNION}.u")}, "S"), {"a": {}}, "has no number"),
    (data.INT32, "text", "Invalid value for INT32"),
)


@pytest.mark.parametrize(("schema", "value", "reason"), UNWRITABLE)
def test_unwritable_values_name_the_cause(registry: str, schema: Schema, value: Any, reason: str) -> None:
    made = converter(registry)
    with pytest.raises(DataError, match=rf"topic refused.*{reason}"):
        made.from_connect("refused", schema, value)
    made.close()
    # A value that does not fit registers no schema.
    with RegistryClient({"schema.registry.url": registry}) as client:
        assert "refused-value" not in client.get_subjects()


def test_deep_schemas_are_refused() -> None:
    schema = data.INT32
    for depth in range(200):
        schema = data.struct({"f": schema}, f"S{depth}")
    with pytest.raises(DataError, match="nested more than"):
        ProtobufSchemaWriter(ProtobufOptions()).written(schema)


def test_record_goes_through_the_registry_and_comes_back(registry: str) -> None:
    schema, value = TEXT.to_connect("t", json.dumps({"schema": MANY, "payload": MANY_VALUES}).encode())
    writer = converter(registry, {"enhanced.protobuf.schema.support": "true"})
    written = writer.from_connect("orders", schema, value)
    assert written is not None
    assert written[0] == 0
    assert writer.from_connect("orders", schema, value) == written
    found = writer.to_connect("orders", written)
    assert writer.to_connect("orders", written).schema is found.schema, "one schema object for each id"
    assert found.value == {**value, "with_default": "x"}
    # The schema that was read has the numbers of the fields: it is the schema in the registry.
    assert writer.from_connect("orders", found.schema, found.value)[:5] == written[:5]
    assert writer.from_connect("orders", schema, None) is None
    assert writer.to_connect("orders", None) == (None, None)
    writer.close()


def test_confluents_python_client_reads_the_messages(registry: str) -> None:
    writer = converter(registry)
    inner = data.struct({"n": data.INT64}, "Inner")
    schema = data.struct(
        {"id": data.INT32, "inner": inner, "day": data.date(), "tags": data.array(data.STRING)}, "shop.Order"
    )
    value = {"id": 5, "inner": {"n": 7}, "day": date(2024, 2, 29), "tags": ["a", "b"]}
    written = writer.from_connect("shop", schema, value)
    with SchemaRegistryClient({"url": registry}) as client:
        text = client.get_latest_version("shop-value").schema.schema_str
        message_class = schema_of(text).message_class("shop.Order")
        reader = protobuf.ProtobufDeserializer(message_class, {"use.deprecated.format": False}, client)
        message = reader(written, SerializationContext("shop", MessageField.VALUE))
    assert (message.id, message.inner.n, message.day.month, list(message.tags)) == (5, 7, 2, ["a", "b"])
    wrapped = writer.from_connect("texts", data.STRING, "hello")
    assert wrapped is not None
    assert wrapped[5:7] == b"\2\x0e", "the eighth message of wrappers.proto"
    assert writer.to_connect("texts", wrapped) == (data.STRING, "hello")
    writer.close()


def test_settings_of_the_serializer_apply(registry: str) -> None:
    schema = data.struct({"a": data.INT32}, "named.Record")
    refusing = converter(registry, {"auto.register.schemas": "false"})
    with pytest.raises(DataError, match=r"topic absent.*not found"):
        refusing.from_connect("absent", schema, {"a": 1})
    strategy = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    made = converter(registry, {"value.subject.name.strategy": strategy})
    first = made.from_connect("t", schema, {"a": 1})
    assert first is not None
    with RegistryClient({"schema.registry.url": registry}) as client:
        assert "named.Record" in client.get_subjects()
    latest = converter(
        registry,
        {"value.subject.name.strategy": strategy, "use.latest.version": "true", "auto.register.schemas": "false"},
    )
    assert latest.from_connect("t", schema, {"a": 1}) == first
    for each in (refusing, made, latest):
        each.close()


def test_errors_of_reading_name_the_topic(registry: str) -> None:
    made = converter(registry)
    written = made.from_connect("bad", data.struct({"a": data.STRING}, "R"), {"a": "x"})
    assert written is not None
    for body in (b"", b"\1", written[:5], written[:5] + b"\2\x50", written[:-1], written[:5] + b"\0\x0a\1\xff"):
        with pytest.raises(DataError, match=r"topic bad.*cannot be deserialized"):
            made.to_connect("bad", body)
    with pytest.raises(DataError, match=r"topic bad.*cannot be deserialized"):
        made.to_connect("bad", b"\0\0\0\xff\xff\1")
    with pytest.raises(DataError, match="needs a schema for the value"):
        made.from_connect("bad", None, 5)
    with pytest.raises(RetriableError):
        converter(config={"max.retries": "0"}).from_connect("bad", data.INT32, 5)
    made.close()


def test_times_have_nanoseconds() -> None:
    schema = data.struct({"t": data.time_of_day(), "m": data.timestamp()}, "T")
    value = {"t": time(1, 2, 3, 4_999), "m": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)}
    text, body = own(schema, value, ProtobufOptions())
    message = schema_of(text).message_class("T").FromString(body[1:])
    assert (message.t.hours, message.t.minutes, message.t.seconds, message.t.nanos) == (1, 2, 3, 4_000_000)
    assert (message.m.seconds, message.m.nanos) == (-1, 999_000_000)


def test_sums_of_all_formats() -> None:
    text = 'syntax = "proto3"; message R { oneof o { int32 a = 1; string b = 2; } K k = 3; enum K { X = 0; Y = 1; } }'
    for config, field in (({}, "o_0"), ({"generate.index.for.unions": "false"}, "o")):
        config = {**config, "generalized.sum.type.support": "true"}
        found = converter(config=config).reader_of(text)(body_of(text, "R", 'b: "q" k: Y'), 0)
        assert found.value == {field: {"b": "q"}, "k": "Y"}
        assert found.schema is not None
        union = found.schema.fields_by_name[field].schema
        assert union.parameters == {"org.apache.kafka.connect.data.Union": "o"}
        assert found.schema.fields_by_name["k"].schema.parameters["org.apache.kafka.connect.data.Enum.Y"] == "1"
        written, body = own(found.schema, found.value, options_of(config))
        assert converter(config=config).reader_of(written)(body, 0) == found
    flat = converter(config={"flatten.unions": "true", "int.for.enums": "true"}).reader_of(text)
    assert flat(body_of(text, "R", 'b: "q" k: Y'), 0).value == {"a": None, "b": "q", "k": 1}
    text = 'syntax = "proto3"; message R { I i = 1; optional int32 o = 2; message I { repeated int32 n = 1; } }'
    with_structs = converter(config={"generate.struct.for.nulls": "true"}).reader_of(text)
    assert with_structs(b"\0", 0).value == {"i": {"n": []}, "o": 0}
