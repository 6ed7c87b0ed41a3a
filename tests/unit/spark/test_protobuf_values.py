"""Protobuf values as typed columns and back."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from ottla.spark.formats import FormatError, column_type, decode
from ottla.spark.options import OptionError, SourceOptions, read_sink_options, read_source_options
from ottla.spark.protobuf_messages import message_class
from ottla.spark.writing_formats import encoder

FIELD = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "whole": FIELD.TYPE_INT32, "long": FIELD.TYPE_SINT64, "u32": FIELD.TYPE_UINT32, "u64": FIELD.TYPE_FIXED64,
    "yes": FIELD.TYPE_BOOL, "real": FIELD.TYPE_DOUBLE, "text": FIELD.TYPE_STRING, "data": FIELD.TYPE_BYTES,
}  # fmt: skip


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """Return a file with the message shop.Order, which has fields of each kind, and shop.Tree, which is recursive."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED", "BLUE")):
        colour.value.add(name=name, number=number)
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(KINDS.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    more = {"type": FIELD.TYPE_MESSAGE, "label": FIELD.LABEL_OPTIONAL}
    order.field.add(name="at", number=20, type_name=".google.protobuf.Timestamp", **more)
    order.field.add(name="item", number=21, type_name=".shop.Item", **more)
    order.field.add(
        name="colour", number=22, type=FIELD.TYPE_ENUM, type_name=".shop.Colour", label=FIELD.LABEL_OPTIONAL
    )
    many = {"label": FIELD.LABEL_REPEATED}
    order.field.add(name="items", number=23, type=FIELD.TYPE_MESSAGE, type_name=".shop.Item", **many)
    order.field.add(name="numbers", number=24, type=FIELD.TYPE_INT32, **many)
    entry = order.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    order.field.add(name="prices", number=25, type=FIELD.TYPE_MESSAGE, type_name=".shop.Order.PricesEntry", **many)
    order.field.add(
        name="maybe", number=26, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    order.oneof_decl.add(name="_maybe")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="child", number=1, type_name=".shop.Tree", **more)
    return file


def descriptors() -> str:
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file_descriptor())
    return base64.b64encode(found.SerializeToString()).decode()


DESCRIPTORS = descriptors()
Order = message_class("shop.Order", DESCRIPTORS)
FORMAT = {"value.format": "protobuf", "value.protobuf.message": "shop.Order", "value.protobuf.descriptors": DESCRIPTORS}
SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


def options(**more: str) -> SourceOptions:
    return read_source_options({**SERVERS, "subscribe": "t", **FORMAT, **more}, streaming=False)


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count, pa.string()),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
        }
    )


def read(values: list[bytes | None], **more: str) -> list[Any]:
    (typed,) = decode(iter([batch(values)]), options(**more))
    typed.validate(full=True)
    rows: list[Any] = typed.column("value").to_pylist()
    return rows


FULL = {
    "whole": -7, "long": -(2**60), "u32": 2**32 - 1, "u64": Decimal(2**64 - 1), "yes": True, "real": 1.5,
    "text": "é", "data": b"\x00", "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC), "item": {"name": "x"},
    "colour": "BLUE", "items": [{"name": "a"}, {"name": ""}], "numbers": [3, 0], "prices": [("p", 5)], "maybe": 0,
}  # fmt: skip
EMPTY = {
    "whole": 0, "long": 0, "u32": 0, "u64": Decimal(0), "yes": False, "real": 0.0, "text": "", "data": b"", "at": None,
    "item": None, "colour": "NONE", "items": [], "numbers": [], "prices": [], "maybe": None,
}  # fmt: skip


def full() -> Any:
    message = Order(
        whole=-7, long=-(2**60), u32=2**32 - 1, u64=2**64 - 1, yes=True, real=1.5, text="é", data=b"\x00", colour=2,
        numbers=[3, 0], prices={"p": 5}, maybe=0,
    )  # fmt: skip
    message.at.FromDatetime(dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC))
    message.item.name = "x"
    message.items.add(name="a")
    message.items.add()
    return message


def test_each_kind_of_field_and_its_default() -> None:
    assert read([full().SerializeToString(), None, b""]) == [FULL, None, EMPTY]


def test_types_of_columns() -> None:
    kind = column_type("value", options())
    assert kind.simpleString() == (
        "struct<whole:int,long:bigint,u32:bigint,u64:decimal(20,0),yes:boolean,real:double,text:string,data:binary,"
        "at:timestamp,item:struct<name:string>,colour:string,items:array<struct<name:string>>,numbers:array<int>,"
        "prices:map<string,bigint>,maybe:int>"
    )


def test_unknown_enum_and_unknown_field() -> None:
    (row,) = read([Order(colour=9).SerializeToString() + b"\xfa\x3f\x01x"])
    assert row == {**EMPTY, "colour": "9"}


def test_invalid_value_is_named() -> None:
    with pytest.raises(FormatError, match=r"partition 3, offset 101: the value is not a message shop\.Order"):
        read([b"", b"\xff", b"\xff"])
    far = Order()
    far.at.seconds = 2**60
    with pytest.raises(FormatError, match="offset 100: the value has a field without a column: a time of 11529"):
        read([far.SerializeToString()])


def test_permissive_read_has_null_and_the_bytes() -> None:
    far = Order()
    far.at.seconds = 2**60
    values = [b"\xff", full().SerializeToString(), far.SerializeToString()]
    given = options(mode="PERMISSIVE", includeErrors="true")
    (typed,) = decode(iter([batch([*values])]), given)
    typed.validate(full=True)
    assert typed.column("value").to_pylist() == [None, FULL, None]
    assert [each and each["value"] for each in typed.column("error").to_pylist()] == [values[0], None, values[2]]


ORDERS = st.builds(
    lambda whole, text, numbers, prices, names, second: Order(
        whole=whole, text=text, numbers=numbers, prices=prices, items=[{"name": name} for name in names],
        at={"seconds": second, "nanos": 1000}, maybe=whole,
    ),
    st.integers(-(2**31), 2**31 - 1), st.text(max_size=5), st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3), st.lists(st.text(max_size=3), max_size=3),
    st.integers(-62_135_596_800, 253_402_300_799),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | ORDERS, max_size=6))
def test_written_values_equal_the_read_values(orders: list[Any]) -> None:
    values = [None if each is None else each.SerializeToString(deterministic=True) for each in orders]
    (typed,) = decode(iter([batch([*values])]), options())
    encode = encoder(read_sink_options({**SERVERS, "topic": "t", **FORMAT}), StructType().add("value", _type()))
    assert encode is not None
    assert encode(typed.select(["value"])).column("value").to_pylist() == values


def _type() -> Any:
    return column_type("value", options())


def test_value_that_does_not_fit_is_named() -> None:
    kind = StructType().add("colour", "string").add("whole", "long")
    encode = encoder(read_sink_options({**SERVERS, "topic": "t", **FORMAT}), kind)
    assert encode is not None
    rows = {"colour": ["RED", "GREEN"], "whole": [1, 2]}
    with pytest.raises(FormatError, match="A value cannot be written: its field 'colour' does not fit"):
        encode(pa.RecordBatch.from_pydict(rows))
    with pytest.raises(FormatError, match="its field 'whole' does not fit"):
        encode(pa.RecordBatch.from_pydict({"colour": ["RED"], "whole": [2**40]}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"value.protobuf.message": "shop.Ordr"}, r"value\.protobuf\.message is 'shop\.Ordr', which the descriptors"),
        ({"value.protobuf.message": "shop.Tree"}, "contains itself"),
        ({"value.protobuf.descriptors": "%"}, r"value\.protobuf\.descriptors is not a FileDescriptorSet in base64"),
        ({"value.protobuf.descriptors": "/w=="}, r"value\.protobuf\.descriptors is not a FileDescriptorSet in base64"),
        ({"value.schema": "a INT"}, r"did you mean value\.format=json"),
    ],
)
def test_wrong_options(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        column_type("value", options(**more))


def test_missing_options() -> None:
    given = read_source_options({**SERVERS, "subscribe": "t", "value.format": "protobuf"}, streaming=False)
    with pytest.raises(OptionError, match=r"value\.format=protobuf needs value\.protobuf\.message"):
        column_type("value", given)


def test_column_that_the_message_does_not_have() -> None:
    given = read_sink_options({**SERVERS, "topic": "t", **FORMAT})
    with pytest.raises(OptionError, match="has no field 'wole'"):
        encoder(given, StructType().add("wole", "integer"))
