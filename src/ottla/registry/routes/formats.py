"""The parameters `format` and `referenceFormat`: other forms of a stored schema in a response."""

from __future__ import annotations

from dataclasses import replace

from ottla.registry import errors
from ottla.registry.parsed import HasFormats
from ottla.registry.routes.requests import Request
from ottla.registry.stored import StoredSchema, Version
from ottla.registry.subjects import DEFAULT_CONTEXT, context_of, qualify
from ottla.schemas.model import InvalidSchema


def formatted(request: Request, version: Version) -> StoredSchema:
    """Return the schema of a version with its text in the form that `format` names.

    Forms that a type does not have are ignored, as Confluent's registry does.
    """
    name = request.text("format").strip()
    if not name:
        return version.schema
    try:
        parsed = request.state.parse_stored(version)
        text = parsed.formatted(name) if isinstance(parsed, HasFormats) else None
    except InvalidSchema as error:
        raise errors.invalid_schema(str(error)) from error
    stored = version.schema
    return stored if text is None else _copy(stored, text=text)


def qualified_references(request: Request, version: Version, stored: StoredSchema) -> StoredSchema:
    """Return the schema with the full names of the subjects that it references, if `referenceFormat` asks for them."""
    is_wanted = request.text("referenceFormat") == "qualified"
    if not (is_wanted and stored.references) or context_of(version.subject) == DEFAULT_CONTEXT:
        return stored
    references = tuple(item._replace(subject=qualify(version.subject, item.subject)) for item in stored.references)
    return _copy(stored, references=references)


def _copy(stored: StoredSchema, **changes: object) -> StoredSchema:
    return StoredSchema(stored.id, replace(stored.schema, **changes), stored.digest)  # type: ignore[arg-type]
