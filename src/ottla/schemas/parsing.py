"""From the text of a schema to a `ParsedSchema`, by type."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.json_schema.schema import JsonSchema
from ottla.schemas.model import InvalidSchema, ParsedSchema, Reference, Schema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf


def parse(schema: Schema, referenced: Mapping[str, Schema], *, is_new: bool = True) -> ParsedSchema:
    """Parse a schema; `referenced` has each schema that it uses, directly or not, by the name of the reference.

    `is_new=False` reads a schema that a registry stored, whose registry possibly had older rules. Raises InvalidSchema.
    """
    ordered = dict(in_order(schema, referenced))
    if schema.type is SchemaType.AVRO:
        return AvroSchema(schema.text, [each.text for each in ordered.values()], is_new=is_new)
    if schema.type is SchemaType.JSON:
        return JsonSchema(schema.text, {name: each.text for name, each in ordered.items()}, is_new=is_new)
    return parse_protobuf(schema, ordered, is_new=is_new)


def in_order(schema: Schema, referenced: Mapping[str, Schema]) -> list[tuple[str, Schema]]:
    """The referenced schemas with their names, each after those that it uses itself. Raises InvalidSchema.

    A name that is referenced twice counts once.
    """
    ordered: dict[str, Schema] = {}
    open_names: set[str] = set()
    waiting: list[tuple[Reference, bool]] = [(each, False) for each in reversed(schema.references)]
    while waiting:
        reference, is_done = waiting.pop()
        name = reference.name
        if is_done:
            open_names.discard(name)
            ordered[name] = referenced[name]
        elif name not in ordered:
            if name not in referenced:
                raise InvalidSchema(
                    f"No schema reference found for name {name!r}: subject {reference.subject!r}, "
                    f"version {reference.version}"
                )
            if name in open_names:
                raise InvalidSchema(f"the references of {name!r} lead back to it")
            open_names.add(name)
            waiting.append((reference, True))
            waiting += [(each, False) for each in reversed(referenced[name].references)]
    return list(ordered.items())
