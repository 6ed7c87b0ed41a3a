"""Values of lookups: for random schemas and values, the same as from the Spark source."""

from __future__ import annotations

import base64
import io
import json
import random
import warnings
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.ids import TopicPartition
from ottla.serde.objects import moment, objects_of
from ottla.spark.formats import FormatError, decode
from ottla.spark.json_columns import to_json
from ottla.spark.json_schema import plan_of_type
from ottla.spark.options import OptionError, read_source_options
from ottla.spark.protobuf_messages import message_class
from ottla.spark.range_reader import arrow_schema
from ottla.streams.lookup import Stored
from ottla.streams.lookup_values import decode_value
from ottla.streams.settings import format_options
from tests.conftest import DRAWN_EXAMPLES

PLACE = TopicPartition("t", 3)


def both(kind: str, schema: str, value: bytes) -> tuple[Any, Any]:
    """Return what a lookup and the Spark source make of a value; an invalid one is the beginning of its error."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **format_options("value", kind, schema, ())}
    source = read_source_options(given, streaming=False)
    row = {"key": b"k", "value": value, "topic": "t", "partition": 3, "offset": 7, "timestampType": 0}
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema())
    looked_up: Any
    read: Any
    try:
        looked_up = decode_value(Stored(PLACE, 7, 0, b"k", value), source)
    except FormatError as error:
        looked_up = str(error)
    try:
        column = next(decode(iter((batch,)), source)).column("value")
    except FormatError as error:
        read = str(error).removesuffix("\nThe option mode=PERMISSIVE makes such values null")
    else:
        try:
            with warnings.catch_warnings():
                # A damaged value may have a key twice, which pyarrow mentions.
                warnings.simplefilter("ignore", UserWarning)
                read = column[0].as_py(maps_as_pydicts="lossy")
        except (OverflowError, ValueError):  # pyarrow's: a time that Python does not have
            read = f"Topic 't', partition 3, offset 7: the value has {moment_error(looked_up)}"
    return looked_up, read


def moment_error(found: Any) -> str:
    return str(found).partition("the value has ")[2]


def shown(found: Any) -> str:
    """Return a value as text, in which not-a-number is equal to itself."""
    return repr(found).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


# -- JSON --------------------------------------------------------------------------------------------------------------

SIMPLE = st.sampled_from(
    ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(12,3)", "DECIMAL(38,18)", "STRING",
     "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"]
)  # fmt: skip
NAMES = st.text("abcdef_", min_size=1, max_size=3)


def structs(kinds: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.dictionaries(NAMES, kinds, min_size=1, max_size=4)
    return fields.map(lambda found: f"STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in found.items())}>")


KINDS = st.recursive(
    SIMPLE,
    lambda each: each.map("ARRAY<{}>".format) | each.map("MAP<STRING, {}>".format) | structs(each),
    max_leaves=8,
)


def random_value(kind: Any, chance: random.Random) -> Any:
    """Return a value for an Arrow type, or null."""
    if chance.random() < 0.15:
        return None
    if pa.types.is_struct(kind):
        return {field.name: random_value(field.type, chance) for field in kind}
    if pa.types.is_list(kind):
        return [random_value(kind.value_type, chance) for _ in range(chance.randrange(4))]
    if pa.types.is_map(kind):
        return [(f"k{each}", random_value(kind.item_type, chance)) for each in range(chance.randrange(4))]
    if pa.types.is_string(kind):
        return chance.choice(["", "é", 'a"\n', "x" * 40, "\U0001f600"])
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.randrange(5))
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_floating(kind):
        return chance.choice([0.0, -0.0, 1.5, 1e30, -2.5e-7, float("inf")])
    if pa.types.is_decimal(kind):
        return pa.scalar(chance.randrange(-(10**8), 10**8), pa.int64()).cast(pa.decimal128(38, 18)).cast(kind).as_py()
    if pa.types.is_date(kind):
        return moment(chance.randrange(-(10**15), 10**16), False).date()
    if pa.types.is_timestamp(kind):
        return moment(chance.randrange(-(6 * 10**16), 2 * 10**17), kind.tz is not None)
    return chance.randrange(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1))


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(structs(KINDS), st.randoms(use_true_random=False), st.booleans())
def test_json_is_the_same_as_in_spark(schema: str, chance: random.Random, is_damaged: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    from ottla.clients.arrow_columns import plan_of
    from ottla.spark.ddl import data_type, nullable, parse

    kind = to_arrow_type(data_type(parse(schema)), timezone="UTC")
    assert plan_of_type(nullable(parse(schema))) == plan_of(kind)
    text = to_json(pa.array([random_value(kind, chance) or {}], kind))[0].as_py()
    if is_damaged:
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice([b"", b"0", b'"', b"}", b"\xff"]) + text[at + 1 :]
    looked_up, read = both("json", schema, text)
    assert shown(looked_up) == shown(read)


def test_json_of_special_values() -> None:
    assert both("json", "a INT, _corrupt_record STRING", b'{"a": 1}') == ({"a": 1, "_corrupt_record": None},) * 2
    assert both("json", "a INT", b"  ") == (None, None)
    assert both("json", "m MAP<STRING, INT>", b'{"m": {"x": 1, "x": 2}}') == ({"m": {"x": 2}},) * 2
    looked_up, read = both("json", "a STRUCT<b: INT>", b'{"a": {"b": "x"}}')
    assert looked_up == read == "Topic 't', partition 3, offset 7: the value's field a.b is 'x'; it must be int"
    with pytest.raises(OptionError, match=r"value\.schema: a is decimal\(50,0\); a decimal has 1 to 38 digits"):
        both("json", "a DECIMAL(50)", b"{}")


# -- Avro --------------------------------------------------------------------------------------------------------------

LOGICAL = [
    {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
]  # fmt: skip
AVRO = st.recursive(
    st.sampled_from(["boolean", "int", "long", "float", "double", "bytes", "string", *LOGICAL]),
    lambda each: (
        each.map(lambda kind: {"type": "array", "items": kind})
        | each.map(lambda kind: {"type": "map", "values": kind})
        | each.filter(lambda kind: not isinstance(kind, list)).map(lambda kind: ["null", kind])
        | st.lists(each, min_size=1, max_size=4).map(lambda kinds: {"type": "record", "fields": kinds})
    ),
    max_leaves=8,
)


def named(schema: Any, numbers: Any) -> Any:
    """Give records and fields names, which must be unique."""
    if isinstance(schema, list):
        return [named(each, numbers) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        fields = [{"name": f"f{at}", "type": named(each, numbers)} for at, each in enumerate(schema["fields"])]
        return {"type": "record", "name": f"R{next(numbers)}", "fields": fields}
    return {name: named(each, numbers) if name in ("items", "values") else each for name, each in schema.items()}


def avro_value(schema: Any, chance: random.Random) -> Any:
    """Return a value that fastavro writes without its logical type."""
    if isinstance(schema, list):
        return None if chance.random() < 0.3 else avro_value(schema[1], chance)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {field["name"]: avro_value(field["type"], chance) for field in schema["fields"]}
    if kind == "array":
        return [avro_value(schema["items"], chance) for _ in range(chance.randrange(4))]
    if kind == "map":
        return {f"k{each}": avro_value(schema["values"], chance) for each in range(chance.randrange(4))}
    if kind == "boolean":
        return chance.random() < 0.5
    if kind in ("float", "double"):
        return chance.choice([0.0, 1.5, -2.5, 3.4e38])
    if kind == "bytes":
        return chance.randbytes(chance.randrange(4))
    if kind == "string":
        return chance.choice(["", "é", "\U0001f600", "x" * 20])
    return chance.randrange(-(2**31), 2**31) if kind == "int" else chance.randrange(-(2**58), 2**58)


def without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_logical(each) for name, each in schema.items() if name != "logicalType"}
    return [without_logical(each) for each in schema] if isinstance(schema, list) else schema


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(AVRO, st.randoms(use_true_random=False), st.booleans())
def test_avro_is_the_same_as_in_spark(shape: Any, chance: random.Random, is_damaged: bool) -> None:
    schema = named(shape, iter(range(1_000)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(schema)), avro_value(schema, chance))
    value = out.getvalue()
    if is_damaged and value:
        at = chance.randrange(len(value))
        value = value[:at] + chance.choice([b"", b"\xff", b"\x00\x01"]) + value[at + 1 :]
    looked_up, read = both("avro", json.dumps(schema), value)
    assert shown(looked_up) == shown(read)


# -- Protobuf ----------------------------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = [number for number in range(1, 19) if number not in (FIELD.TYPE_GROUP, FIELD.TYPE_MESSAGE, FIELD.TYPE_ENUM)]
MAP_KEYS = [number for number in SCALARS if number not in (1, 2, FIELD.TYPE_BYTES)]


def random_descriptors(chance: random.Random) -> str:
    """Return a FileDescriptorSet with the messages p.M0 and p.M1, which is a part of the first one."""
    file = descriptor_pb2.FileDescriptorProto(
        name="p.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    for number in (0, 1):
        message = file.message_type.add(name=f"M{number}")
        for at in range(1, chance.randrange(2, 7)):
            label = chance.choice([FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED])
            field = message.field.add(name=f"f{at}", number=at, label=label)
            what = chance.choice(["scalar", "scalar", "enum", "time", "map", "message"])
            if what == "map":
                entry = message.nested_type.add(name=f"F{at}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=chance.choice(MAP_KEYS), label=FIELD.LABEL_OPTIONAL)
                entry.field.add(name="value", number=2, type=chance.choice(SCALARS), label=FIELD.LABEL_OPTIONAL)
                field.label = FIELD.LABEL_REPEATED
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f".p.M{number}.F{at}Entry"
            elif what == "enum":
                field.type, field.type_name = FIELD.TYPE_ENUM, ".p.Colour"
            elif what == "time" or (what == "message" and number):
                field.type, field.type_name = FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp"
            elif what == "message":
                field.type, field.type_name = FIELD.TYPE_MESSAGE, ".p.M1"
            else:
                field.type = chance.choice(SCALARS)
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    return base64.b64encode(found.SerializeToString()).decode()


def scalar(kind: int, chance: random.Random) -> Any:
    if kind in (FIELD.TYPE_DOUBLE, FIELD.TYPE_FLOAT):
        return chance.choice([1.5, -0.1, 3e38])
    if kind == FIELD.TYPE_BOOL:
        return True
    if kind == FIELD.TYPE_STRING:
        return chance.choice(["", "é", "xyz"])
    if kind == FIELD.TYPE_BYTES:
        return chance.randbytes(3)
    if kind == FIELD.TYPE_ENUM:
        return chance.choice([0, 1, 77])
    is_unsigned = kind in (FIELD.TYPE_UINT32, FIELD.TYPE_UINT64, FIELD.TYPE_FIXED32, FIELD.TYPE_FIXED64)
    bits = 64 if kind in (3, 4, 6, 16, 18) else 32
    return chance.randrange(0, 2**bits) if is_unsigned else chance.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))


def fill(message: Any, chance: random.Random) -> Any:
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.2:
            continue
        inner = field.message_type
        if inner is None and field.is_repeated:
            getattr(message, field.name).extend(scalar(field.type, chance) for _ in range(chance.randrange(3)))
        elif inner is None:
            setattr(message, field.name, scalar(field.type, chance))
        elif inner.GetOptions().map_entry:
            key, value = inner.fields
            getattr(message, field.name)[scalar(key.type, chance)] = scalar(value.type, chance)
        elif field.is_repeated:
            fill(getattr(message, field.name).add(), chance)
        elif inner.full_name == "google.protobuf.Timestamp":
            getattr(message, field.name).seconds = chance.choice([0, 1_700_000_000, -62_135_596_801])
        else:
            fill(getattr(message, field.name), chance)
    return message


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_protobuf_is_the_same_as_in_spark(chance: random.Random, is_damaged: bool) -> None:
    descriptors = random_descriptors(chance)
    value = fill(message_class("p.M0", descriptors)(), chance).SerializeToString()
    if is_damaged and value:
        value = value[: chance.randrange(len(value))]
    looked_up, read = both("protobuf", f"p.M0 {descriptors}", value)
    if isinstance(read, str):
        read = read.replace("has a field without a column: ", "has ")
    assert shown(looked_up) == shown(read)


def test_recursive_message_is_an_error() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    file.message_type.add(name="Tree").field.add(
        name="child", number=1, type=FIELD.TYPE_MESSAGE, type_name=".t.Tree", label=FIELD.LABEL_OPTIONAL
    )
    found = descriptor_pb2.FileDescriptorSet(file=[file])
    with pytest.raises(OptionError, match=r"The message t\.Tree contains itself"):
        both("protobuf", f"t.Tree {base64.b64encode(found.SerializeToString()).decode()}", b"")


# -- Python objects ----------------------------------------------------------------------------------------------------


def test_time_that_python_does_not_have_is_an_error_of_the_value() -> None:
    schema = json.dumps({"type": "long", "logicalType": "timestamp-micros"})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", 2**62)
    looked_up, _ = both("avro", schema, out.getvalue())
    assert looked_up == (
        f"Topic 't', partition 3, offset 7: the value has a time of {2**62} microseconds, which is not between the "
        "years 1 and 9999"
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "int", 2**31 - 1)
    looked_up, _ = both("avro", json.dumps({"type": "int", "logicalType": "date"}), out.getvalue())
    assert "the value has a date of 2147483647 days since 1970, which is not between" in looked_up


def test_columns_without_rows_have_no_objects() -> None:
    from ottla.serde._builders import builder

    for plan in (("int8",), ("list", ("string",)), ("map", ("string",), ("bool",)), ("struct", (("a", ("date32",)),))):
        assert objects_of(plan, builder(plan).finish()) == []  # type: ignore[no-untyped-call,unused-ignore]
