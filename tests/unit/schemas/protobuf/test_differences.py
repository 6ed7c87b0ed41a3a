"""Incompatibilities of two versions of a Protobuf schema: kinds, paths and messages."""

from __future__ import annotations

import pytest

from ottla.schemas.model import Reference, Schema, SchemaType
from ottla.schemas.protobuf.schema import ProtobufSchema, parse_protobuf


def parsed(body: str, syntax: str = "proto3") -> ProtobufSchema:
    return parse_protobuf(Schema(SchemaType.PROTOBUF, f'syntax = "{syntax}"; {body}'), {})


def kinds(writer: str, reader: str, syntax: str = "proto3") -> set[tuple[str, str]]:
    found = parsed(reader, syntax).incompatibilities(parsed(writer, syntax))
    return {(each.kind, each.path) for each in found}


def message(fields: str) -> str:
    return f"message A {{ {fields} }} message B {{}} enum E {{ X = 0; }}"


COMPATIBLE = [
    ("string a = 1;", "string renamed = 1;"),
    ("string a = 1; int32 b = 2;", "string a = 1;"),
    ("string a = 1;", "string a = 1; B b = 2;"),
    ("string a = 1;", "bytes a = 1;"),
    ("int32 a = 1;", "E a = 1;"),
    ("bool a = 1;", "uint64 a = 1;"),
    ("int32 a = 1;", "repeated int32 a = 1;"),
    ("optional string a = 1;", "repeated string a = 1;"),
    ("oneof o { string a = 1; }", "string a = 1;"),
    ("string a = 1;", "oneof o { string a = 1; }"),
    ("oneof o { string a = 1; }", "oneof o { string a = 1; string b = 2; }"),
    ("oneof o { string a = 1; string b = 2; } int32 c = 3;", "int32 c = 3;"),
    ("oneof o { string a = 1; string b = 2; }", "oneof renamed { string a = 1; string b = 2; }"),
    ("map<string, int32> a = 1;", "map<string, int64> a = 1;"),
]
INCOMPATIBLE = [
    ("string a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
    ("int32 a = 1;", "sint32 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
    ("float a = 1;", "double a = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
    ("fixed32 a = 1;", "fixed64 a = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
    ("string a = 1;", "B a = 1;", "FIELD_KIND_CHANGED", "#/A/1"),
    ("B a = 1;", "map<string, B> a = 1;", "FIELD_KIND_CHANGED", "#/A/1"),
    ("B a = 1;", "A a = 1;", "FIELD_NAMED_TYPE_CHANGED", "#/A/1"),
    ("optional int32 a = 1;", "repeated int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED", "#/A/1"),
    ("map<string, int32> a = 1;", "map<int32, int32> a = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
    ("map<string, int32> a = 1;", "map<string, B> a = 1;", "FIELD_KIND_CHANGED", "#/A/1"),
    ("oneof o { string a = 1; string b = 2; }", "oneof o { string a = 1; }", "ONEOF_FIELD_REMOVED", "#/A/o/2"),
    ("oneof o { string a = 1; string b = 2; }", "string a = 1;", "ONEOF_FIELD_REMOVED", "#/A/o/2"),
    (
        "string a = 1; string b = 2;",
        "oneof o { string a = 1; string b = 2; }",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        "#/A/o",
    ),
    (
        "string a = 1; oneof o { string b = 2; }",
        "oneof o { string a = 1; string b = 2; }",
        "FIELD_MOVED_TO_EXISTING_ONEOF",
        "#/A/o",
    ),
    ("oneof o { string a = 1; }", "oneof o { int32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED", "#/A/o/1"),
    ("message N { string a = 1; }", "", "MESSAGE_REMOVED", "#/A/N"),
    ("message N { string a = 1; }", "message N { int32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED", "#/A/N/1"),
]


@pytest.mark.parametrize(("writer", "reader"), COMPATIBLE)
def test_compatible_changes(writer: str, reader: str) -> None:
    assert kinds(message(writer), message(reader)) == set()


@pytest.mark.parametrize(("writer", "reader", "kind", "path"), INCOMPATIBLE)
def test_incompatible_changes(writer: str, reader: str, kind: str, path: str) -> None:
    assert kinds(message(writer), message(reader)) == {(kind, path)}


def test_required_fields() -> None:
    without, with_field = "message A {}", "message A { required string a = 1; }"
    assert kinds(without, with_field, "proto2") == {("REQUIRED_FIELD_ADDED", "#/A/1")}
    assert kinds(with_field, without, "proto2") == {("REQUIRED_FIELD_REMOVED", "#/A/1")}


def test_packages() -> None:
    assert kinds("message A {}", "package p; message A {}") == {("PACKAGE_CHANGED", "#/")}


def test_messages_name_field_types_and_path() -> None:
    [found] = parsed(message("int32 b = 1;")).incompatibilities(parsed(message("string a = 1;")))
    assert found.message == (
        "Field b has the type int32 in the reader schema and string in the writer schema, which is encoded otherwise "
        "(at '#/A/1')"
    )
    [found] = parsed("message A {}").incompatibilities(parsed("package p; message A {}"))
    assert found.message.startswith(
        "The package of the reader schema is absent, and the package of the writer schema is p"
    )


def test_map_entries_that_are_written_out_are_maps() -> None:
    entry = """message A { repeated MEntry m = 1;
    message MEntry { option map_entry = true; string key = 1; int32 value = 2; } }"""
    assert kinds(entry, "message A { map<string, int64> m = 1; }") == set()
    assert kinds("message A { map<string, int64> m = 1; }", entry) == set()
    assert kinds(entry, "message A { map<string, string> m = 1; }") == {("FIELD_SCALAR_KIND_CHANGED", "#/A/1")}


def test_references_are_compared_if_their_versions_differ() -> None:
    def using(version: int, type_name: str) -> ProtobufSchema:
        schema = Schema(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; }',
            (Reference("b.proto", "b", version),),
        )
        text = f'syntax = "proto3"; package b; message B {{ {type_name} x = 1; B self = 2; }}'
        return parse_protobuf(schema, {"b.proto": Schema(SchemaType.PROTOBUF, text)})

    assert using(2, "bytes").incompatibilities(using(1, "string")) == []
    found = using(2, "int32").incompatibilities(using(1, "string"))
    assert {(each.kind, each.path) for each in found} == {
        ("FIELD_SCALAR_KIND_CHANGED", "#/B/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "#/A/1"),
    }
    assert using(1, "int32").incompatibilities(using(1, "string")) == []


def test_message_that_moved_to_a_reference_is_the_same_message() -> None:
    own = parsed("message A { B b = 1; } message B { string x = 1; }")
    schema = Schema(
        SchemaType.PROTOBUF,
        'syntax = "proto3"; import "b.proto"; message A { B b = 1; }',
        (Reference("b.proto", "b", 1),),
    )
    referenced = {"b.proto": Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; message B { string x = 1; }')}
    moved = parse_protobuf(schema, referenced)
    assert [each.kind for each in moved.incompatibilities(own)] == ["MESSAGE_REMOVED"]
