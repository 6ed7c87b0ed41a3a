"""Results of requests to a registry, and schemas as their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.schemas.model import Reference, Schema, SchemaType


class RegisteredSchema(NamedTuple):
    """A schema with its place in the registry. `version` is None if the registry did not return it."""

    id: int
    subject: str
    version: int | None
    schema: Schema
    guid: str | None = None


class SubjectVersion(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int


class CompatibilityResult(NamedTuple):
    """Whether a schema is compatible, and the registry's reasons if not."""

    is_compatible: bool
    messages: tuple[str, ...] = ()


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Return the body of a request. AVRO is the default type and omitted, since old registries reject the field."""
    body: dict[str, Any] = {"schema": schema.text}
    if schema.type is not SchemaType.AVRO:
        body["schemaType"] = schema.type.value
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    if schema.metadata is not None:
        body["metadata"] = schema.metadata
    if schema.rule_set is not None:
        body["ruleSet"] = schema.rule_set
    return body


def schema_from_json(body: Mapping[str, Any]) -> Schema:
    """Read the schema in a response. Raises KeyError or ValueError if the body does not have one."""
    return Schema(
        SchemaType(body.get("schemaType") or "AVRO"),
        body["schema"],
        tuple(Reference(each["name"], each["subject"], each["version"]) for each in body.get("references") or ()),
        body.get("metadata"),
        body.get("ruleSet"),
    )


def registered_from_json(body: Mapping[str, Any], *, subject: str, schema: Schema | None = None) -> RegisteredSchema:
    """Read a response; `subject` and `schema` are the request's, for registries that do not repeat them."""
    found = schema_from_json(body) if body.get("schema") or schema is None else schema
    return RegisteredSchema(body["id"], body.get("subject") or subject, body.get("version"), found, body.get("guid"))
