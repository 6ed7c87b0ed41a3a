"""From schemas to descriptors and back, and to classes that read what another schema wrote."""

from __future__ import annotations

import base64
from random import Random

import pytest

from ottla.schemas.model import InvalidSchema, Reference, Schema, SchemaType
from ottla.schemas.parsing import parse
from ottla.schemas.protobuf.descriptor_classes import descriptor_classes
from ottla.schemas.protobuf.schema import ProtobufSchema, parse_protobuf
from ottla.schemas.protobuf.tokens import MAX_DEPTH

from .corpus import VALID
from .generated import random_file, random_pair, schema_of
from .random_messages import random_message

# Descriptors have no place for groups, and custom options other than Confluent's are dropped, as in its registry.
ROUND_TRIP = sorted(
    VALID.keys() - {"groups", "custom options", "options in oneof and extensions", "imports", "import paths"}
)


def parsed(text: str) -> ProtobufSchema:
    return parse_protobuf(Schema(SchemaType.PROTOBUF, text), {})


@pytest.mark.parametrize("name", VALID)
def test_pool_accepts_descriptors_of_valid_schemas(name: str) -> None:
    schema = parsed(VALID[name])
    assert schema.descriptor().name == "default"
    try:
        first = schema.message_name([0])
    except InvalidSchema:
        assert "message" not in schema.canonical
    else:
        assert schema.message_class().DESCRIPTOR.full_name == first


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_serialized_format_is_the_same_schema(name: str) -> None:
    schema = parsed(VALID[name])
    again = parsed(schema.formatted("serialized"))
    if "default = 0" in schema.canonical or "0x" in schema.canonical:
        # Descriptors have decimal numbers.
        assert again.normalized().count("\n") == schema.normalized().count("\n")
    else:
        assert again.normalized() == schema.normalized()
    assert again.incompatibilities(schema) == schema.incompatibilities(again) == []


def test_other_formats() -> None:
    schema = parsed(VALID["custom options"])
    text = schema.formatted("ignore_extensions")
    assert "field_option" not in text
    assert "extend" not in text
    assert schema.formatted("") == schema.formatted("unknown") == schema.canonical
    meta = parsed(VALID["confluent meta"])
    assert "confluent.field_meta" in meta.formatted("ignore_extensions")
    assert "doc: " in meta.formatted("ignore_extensions")


def test_random_schemas_have_classes() -> None:
    random = Random(1)
    for _ in range(75):
        schema = parse_protobuf(*schema_of(random_file(random)))
        message_class = schema.message_class()
        message = random_message(random, message_class)
        assert message_class.FromString(message.SerializePartialToString()) == message


def test_a_compatible_reader_parses_what_the_writer_wrote() -> None:
    random = Random(2)
    compatible = 0
    for _ in range(150):
        writer, reader = (parse_protobuf(*schema_of(each)) for each in random_pair(random))
        if reader.incompatibilities(writer):
            continue
        compatible += 1
        for index in range(len(writer.file.types)):
            try:
                name = writer.message_name([index])
            except InvalidSchema:
                break
            data = random_message(random, writer.message_class(name)).SerializePartialToString()
            message = reader.message_class(name)()
            message.MergeFromString(data)
            assert message.DESCRIPTOR.full_name == name
    assert compatible > 30


def test_types_that_are_not_imported_become_dependencies() -> None:
    text = 'syntax = "proto3"; message A { google.protobuf.Timestamp t = 1; confluent.type.Decimal d = 2; }'
    schema = parsed(text)
    assert list(schema.descriptor().dependency) == ["google/protobuf/timestamp.proto", "confluent/type/decimal.proto"]
    message = schema.message_class("A")()
    message.t.seconds = 5
    message.d.scale = 2
    assert schema.message_class("A").FromString(message.SerializeToString()).d.scale == 2


def test_absent_imports_that_are_not_needed_are_omitted() -> None:
    schema = parsed('syntax = "proto3"; import "absent.proto"; message A { string a = 1; }')
    assert 'import "absent.proto";' in schema.canonical
    assert list(schema.descriptor().dependency) == []
    assert schema.message_class("A")(a="x").a == "x"


def test_references_are_part_of_the_pool() -> None:
    text = 'syntax = "proto3"; package a; import "b.proto"; message A { b.B b = 1; }'
    referenced = {
        "b.proto": Schema(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; package b; import "c/c.proto"; message B { C c = 1; message C { c.C c = 1; } }',
            (Reference("c/c.proto", "c", 1),),
        ),
        "c/c.proto": Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; package c; message C { int32 x = 1; }'),
    }
    schema = parse(Schema(SchemaType.PROTOBUF, text, (Reference("b.proto", "b", 1),)), referenced)
    assert isinstance(schema, ProtobufSchema)
    message = schema.message_class("a.A")()
    message.b.c.c.x = 7
    assert schema.message_class().FromString(message.SerializeToString()).b.c.c.x == 7


def test_message_indexes() -> None:
    schema = parsed(
        """syntax = "proto3"; package p;
        enum E { X = 0; }
        message A { enum E { Y = 0; } message B {} message C { message D {} } }
        message Z {}"""
    )
    for name, indexes in {"p.A": [0], "p.A.B": [0, 0], "p.A.C": [0, 1], "p.A.C.D": [0, 1, 0], "p.Z": [1]}.items():
        assert schema.message_indexes(name) == indexes
        assert schema.message_name(indexes) == name
    for indexes in ([2], [0, 2], [1, 0], [-1]):
        with pytest.raises(InvalidSchema, match="no message at"):
            schema.message_name(indexes)
    for name in ("p.B", "A.X", "p.E"):
        with pytest.raises(InvalidSchema, match="no message"):
            schema.message_indexes(name)
        with pytest.raises(InvalidSchema, match="no message"):
            schema.message_class(name)


def test_file_with_only_a_public_import_has_the_messages_of_the_import() -> None:
    schema = parsed(VALID["public import without types"])
    assert schema.message_name([0]) == "google.protobuf.Timestamp"
    assert schema.message_class()(seconds=3).seconds == 3


def test_descriptors_that_no_pool_accepts_are_invalid() -> None:
    text, referenced = 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }', "message A {} message B {}"
    schema = parse_protobuf(
        Schema(SchemaType.PROTOBUF, text, (Reference("b.proto", "b", 1),)),
        {"b.proto": Schema(SchemaType.PROTOBUF, referenced)},
    )
    with pytest.raises(InvalidSchema, match="default is not valid"):
        schema.message_class("A")


def test_confluents_metadata_is_part_of_the_descriptor() -> None:
    again = parsed(parsed(VALID["confluent meta"]).formatted("serialized"))
    for part in ('doc: "a file"', '"PII"', '"GDPR"', 'key: "precision"', "(confluent.enum_value_meta)"):
        assert part in again.canonical


def test_descriptors_are_nested_as_deep_as_texts() -> None:
    file = descriptor_classes().file(name="deep", syntax="proto3")
    message = file.message_type.add(name="A")
    for _ in range(MAX_DEPTH + 1):
        message = message.nested_type.add(name="A")
    with pytest.raises(InvalidSchema, match="nested deeper than"):
        parsed(base64.b64encode(file.SerializeToString()).decode())


def test_text_of_a_descriptor_must_be_utf_8() -> None:
    file = descriptor_classes().file(name="text", package="xyz").SerializeToString()
    with pytest.raises(InvalidSchema):
        parsed(base64.b64encode(file.replace(b"xyz", b"x\xffz")).decode())


def test_base64_that_is_not_a_descriptor_has_the_error_of_the_text() -> None:
    with pytest.raises(InvalidSchema, match="line 1: unexpected"):
        parsed(base64.b64encode(b"\x00\x01\x02").decode())
