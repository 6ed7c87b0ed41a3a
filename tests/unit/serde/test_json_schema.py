"""The layout of columns for values of a JSON Schema."""

import pytest

from ottla.serde.json_schema import JsonSchemaError, plan_of_schema

TEXT = ("string",)


@pytest.mark.parametrize(
    ("schema", "plan"),
    [
        ({"type": "boolean"}, ("bool",)),
        ({"type": "integer"}, ("int64",)),
        ({"type": "integer", "connect.type": "int16"}, ("int16",)),
        ({"type": "number"}, ("float64",)),
        ({"type": ["number", "integer", "null"]}, ("float64",)),
        ({"type": ["string", "null"]}, TEXT),
        ({"type": "string", "format": "date-time"}, ("timestamp_us", True)),
        ({"type": "string", "format": "date"}, ("date32",)),
        ({"type": "string", "format": "email"}, TEXT),
        ({"type": "string", "contentEncoding": "base64"}, ("binary",)),
        ({"type": ["string", "integer"]}, TEXT),
        ({}, TEXT),
        (True, TEXT),
        ({"enum": ["a", "b", None]}, TEXT),
        ({"enum": [1, 2]}, ("int64",)),
        ({"const": True}, ("bool",)),
        ({"type": "array", "items": {"type": "integer"}}, ("list", ("int64",))),
        ({"type": "array", "items": [{"type": "integer"}]}, TEXT),
        ({"type": "object", "additionalProperties": {"type": "number"}}, ("map", TEXT, ("float64",))),
        ({"type": "object"}, TEXT),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, ("int64",)),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, TEXT),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {"type": "string"}}},
            ("struct", (("a", ("int64",)), ("b", TEXT))),
        ),
    ],
)
def test_layouts(schema, plan):
    assert plan_of_schema({"type": "object", "properties": {"f": schema}}, {}) == ("struct", (("f", plan),))


def test_references_lead_to_parts_and_to_other_schemas():
    schema = {
        "$id": "http://shop/order.json",
        "type": "object",
        "properties": {
            "id": {"$ref": "#/$defs/id"},
            "customer": {"$ref": "customer.json"},
            "city": {"$ref": "http://shop/customer.json#/properties/city"},
        },
        "$defs": {"id": {"type": "integer"}},
    }
    customer = {"$id": "http://shop/customer.json", "type": "object", "properties": {"city": {"type": "string"}}}
    expected = ("struct", (("id", ("int64",)), ("customer", ("struct", (("city", TEXT),))), ("city", TEXT)))
    for name in ("http://shop/customer.json", "customer.json", "any name"):
        assert plan_of_schema(schema, {name: customer}) == expected


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "#"}, "f contains itself"),
        ({"$ref": "#/$defs/missing"}, "leads nowhere"),
        ({"$ref": "other.json"}, "not one of the schema's references"),
    ],
)
def test_schemas_without_a_layout(schema, problem):
    with pytest.raises(JsonSchemaError, match=problem):
        plan_of_schema({"type": "object", "properties": {"f": schema}}, {})


def test_mutual_recursion_ends():
    nodes = {"a": {"properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {"properties": {"a": {"$ref": "#/$defs/a"}}}}
    with pytest.raises(JsonSchemaError, match="contains itself"):
        plan_of_schema({"$ref": "#/$defs/a", "$defs": nodes}, {})
