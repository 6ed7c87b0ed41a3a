"""Protobuf schemas: canonical and normalized strings, errors, and arbitrary texts."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.model import InvalidSchema, Reference, Schema, SchemaType
from ottla.schemas.parsing import parse
from ottla.schemas.protobuf.schema import ProtobufSchema, parse_protobuf
from ottla.schemas.protobuf.tokens import MAX_DEPTH
from tests.conftest import DRAWN_EXAMPLES

from .corpus import INVALID, VALID

# The strings of Confluent's registry 8; tests/registry compares them with Confluent's classes.
EXPECTED = json.loads((Path(__file__).parent / "canonical.json").read_text())


def parsed(text: str, *, is_new: bool = True) -> ProtobufSchema:
    found = parse(Schema(SchemaType.PROTOBUF, text), {}, is_new=is_new)
    assert isinstance(found, ProtobufSchema)
    return found


@pytest.mark.parametrize("name", VALID)
def test_canonical_and_normalized_strings_are_confluents(name: str) -> None:
    schema = parsed(VALID[name])
    assert [schema.canonical, schema.normalized()] == EXPECTED[name]


@pytest.mark.parametrize("name", VALID)
def test_canonical_string_is_stable(name: str) -> None:
    schema = parsed(VALID[name])
    again = parsed(schema.canonical)
    assert again.canonical == schema.canonical
    assert again.normalized() == schema.normalized()


@pytest.mark.parametrize("name", INVALID)
def test_errors_name_line_and_reason(name: str) -> None:
    text, reason = INVALID[name]
    with pytest.raises(InvalidSchema) as caught:
        parsed(text)
    assert reason in str(caught.value)


def test_stored_schema_needs_only_valid_syntax() -> None:
    text, _ = INVALID["number used twice"]
    assert parsed(text, is_new=False).canonical.count("= 1;") == 2
    with pytest.raises(InvalidSchema):
        parsed(INVALID["missing semicolon"][0], is_new=False)


def test_types_come_from_references() -> None:
    text = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; c.C c = 2; }'
    referenced = {
        "b.proto": Schema(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; package b; import public "c.proto"; message B { c.C c = 1; }',
            (Reference("c.proto", "c", 1),),
        ),
        "c.proto": Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; package c; message C {}'),
    }
    schema = Schema(SchemaType.PROTOBUF, text, (Reference("b.proto", "b", 1),))
    assert ".b.B b = 1;" in parse(schema, referenced).normalized()
    with pytest.raises(InvalidSchema, match="No schema reference found"):
        parse(schema, {})
    with pytest.raises(InvalidSchema, match=r"type b\.B of field b is not defined"):
        parse(Schema(SchemaType.PROTOBUF, text), {})


def test_depth_has_a_limit_and_deep_schemas_below_it_are_valid() -> None:
    depth = MAX_DEPTH - 1
    nested = "message A {" * depth + "}" * depth
    assert parsed(f'syntax = "proto3"; {nested}').normalized().count("message A") == depth
    value = "{a: " * (MAX_DEPTH + 1)
    with pytest.raises(InvalidSchema, match="nested deeper"):
        parsed(f'syntax = "proto3"; option (a) = {value}')


FRAGMENTS = """
syntax = "proto3"; | message A { | enum E { | oneof o { | optional | repeated | map<string, A> | string a = 1; | X = 0;
extend A { | extensions 5 to max; | reserved 3; | service S { | rpc R (A) returns (A); | option (a).b = {c: 1};
/* | */ | // | group G = 1 { | import | [default = 1] | \0 | é | package a; | 0x | 1e9 | }
} | { | < | > | ; | " | ' | [
""".replace("\n", " | ").split(" | ")


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(" ".join)))
@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
def test_arbitrary_text_is_a_schema_or_invalid(text: str) -> None:
    try:
        schema = parsed(text)
    except InvalidSchema:
        return
    assert schema.incompatibilities(schema) == []
    assert isinstance(schema.canonical + schema.normalized(), str)


@given(st.binary(max_size=200))
@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
def test_arbitrary_descriptor_is_a_schema_or_invalid(data: bytes) -> None:
    try:
        parsed(base64.b64encode(data).decode())
    except InvalidSchema:
        return


@pytest.mark.parametrize(
    "text",
    ["/*" * 50_000, '"' * 50_000, "/ " * 50_000, "{" * 50_000, 'option a = "' + "\\" * 99_999, "'" + "a" * 100_000],
    ids=["comments", "quotes", "slashes", "braces", "backslashes", "open string"],
)
def test_long_invalid_texts_take_linear_time(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parsed(text)


def test_large_schemas_take_linear_time() -> None:
    """Quadratic checks of 20000 numbers with 20000 ranges would take minutes."""
    count = 20_000
    reserved = ", ".join(str(100_000 + 2 * number) for number in range(count))
    members = " ".join(f"int32 f{number} = {number};" for number in range(1, 19_000))
    message = f"message A {{ reserved {reserved}; oneof o {{ {members} }} }}"
    schema = parsed(f'syntax = "proto3"; {message} message B {{ A a = 1; }}')
    removed = parsed('syntax = "proto3"; message A { string other = 500000; } message B { A a = 1; }')
    assert removed.incompatibilities(schema) == []
    extensions = ", ".join(str(2 * number) for number in range(100_000, 100_000 + count))
    extends = " ".join(f"extend A {{ optional int32 e{number} = {2 * number}; }}" for number in range(100_000, 105_000))
    assert parsed(f"message A {{ extensions {extensions}; }} {extends}").normalized()
    values = ", ".join(map(str, range(count)))
    options = "extend google.protobuf.FieldOptions { optional O o = 50000; } message O { repeated int32 v = 1; }"
    field = f"optional string a = 1 [(o) = {{v: [{values}]}}, (o) = {{v: [{values}]}}];"
    assert parsed(f"{options} message A {{ {field} }}").normalized().count("\n") > count


@pytest.mark.parametrize("depth", [30, 1000])
def test_shared_messages_are_compared_once(depth: int) -> None:
    """Without memory of finished messages, n levels of two fields each would take 2 ** n comparisons."""
    levels = "".join(f"message L{n} {{ L{n + 1} a = 1; L{n + 1} b = 2; }}" for n in range(depth))

    def level_schema(last: str, version: int) -> ProtobufSchema:
        reference = Schema(SchemaType.PROTOBUF, f'syntax = "proto3"; {levels} message L{depth} {{ {last} a = 1; }}')
        text = 'syntax = "proto3"; import "l.proto"; message A { L0 a = 1; }'
        schema = Schema(SchemaType.PROTOBUF, text, (Reference("l.proto", "l", version),))
        return parse_protobuf(schema, {"l.proto": reference})

    # A reference of the writer that the reader has as another version is compared message by message.
    differences = level_schema("string", 2).incompatibilities(level_schema("int32", 1))
    assert {each.kind for each in differences} == {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}
