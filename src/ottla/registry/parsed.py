"""Parsed schemas in caches of a fixed size, and the schemas that they reference.

References are fixed: a version never changes. A permanent delete may be followed by another schema with the same
number, so each one empties the cache of the schemas with references.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from ottla.registry.stored import Version
from ottla.registry.subjects import context_of, qualify
from ottla.schemas import parsing
from ottla.schemas.model import InvalidSchema, ParsedSchema, Reference, Schema

FindVersion: TypeAlias = Callable[[str, int, bool], Version | None]
"""Finds a version of a subject, with True also a soft-deleted one; -1 is the latest one that is not deleted."""

_MAX_DEPTH: Final = 200


@runtime_checkable
class HasFormats(Protocol):
    """A parsed schema with other forms than the canonical one."""

    def formatted(self, format_name: str) -> str:
        """Return the form with this name; the canonical text if the type does not have it. Raises InvalidSchema."""
        ...


class ParsedSchemas:
    """Parses schemas; `find` returns the versions that they reference."""

    def __init__(self, find: FindVersion, size: int = 1000) -> None:
        self._find = find
        self._size = size
        self._parsed: OrderedDict[Any, ParsedSchema] = OrderedDict()
        self._with_references: OrderedDict[Any, ParsedSchema] = OrderedDict()
        self.generation = 0
        """The number of times that the schemas with references were forgotten."""

    def clear(self) -> None:
        """Forget the schemas with references: a version was deleted."""
        self.generation += 1
        self._with_references.clear()

    def parse(self, subject: str, schema: Schema, *, is_new: bool) -> ParsedSchema:
        """Parse a schema of a subject; a new one must follow stricter rules. Raises InvalidSchema."""
        # The context matters only for the subjects of references.
        context = context_of(subject) if schema.references else None
        key = (schema.type, schema.text, schema.references, context, is_new)
        found = self._lookup(key, schema.references)
        return found if found is not None else self._parse(key, subject, schema, is_new=is_new)

    def parse_stored(self, version: Version) -> ParsedSchema:
        """Parse the schema of a version. Raises InvalidSchema."""
        stored = version.schema
        key = (stored.type, stored.digest, context_of(version.subject))
        found = self._lookup(key, stored.references)
        return found if found is not None else self._parse(key, version.subject, stored.schema, is_new=False)

    def remember(self, subject: str, schema: Schema, digest: bytes, parsed: ParsedSchema) -> None:
        """Keep a schema that will be stored."""
        self._add((schema.type, digest, context_of(subject)), schema.references, parsed)

    def _lookup(self, key: Any, references: tuple[Reference, ...]) -> ParsedSchema | None:
        cache = self._with_references if references else self._parsed
        found = cache.get(key)
        if found is not None:
            cache.move_to_end(key)
        return found

    def _parse(self, key: Any, subject: str, schema: Schema, *, is_new: bool) -> ParsedSchema:
        referenced = {}
        if schema.references:
            referenced = resolve_references(self._find, subject, schema.references, deleted=not is_new)
        parsed = parsing.parse(schema, referenced, is_new=is_new)
        self._add(key, schema.references, parsed)
        return parsed

    def _add(self, key: Any, references: tuple[Reference, ...], parsed: ParsedSchema) -> None:
        cache = self._with_references if references else self._parsed
        cache[key] = parsed
        if len(cache) > self._size:
            cache.popitem(last=False)


def resolve_references(
    find: FindVersion, subject: str, references: tuple[Reference, ...], *, deleted: bool
) -> dict[str, Schema]:
    """Return the schemas that a schema of a subject uses, directly or not, by the names of the references.

    The order follows the dependences: a schema comes after those that it uses. Raises InvalidSchema.
    """
    resolved: dict[str, Schema] = {}
    visited: set[str] = set()

    def resolve(parent: str, wanted: tuple[Reference, ...], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise InvalidSchema(f"The references are nested deeper than {_MAX_DEPTH} levels")
        for reference in wanted:
            target = qualify(parent, reference.subject)
            version = find(target, reference.version, deleted)
            if version is None:
                text = f'No schema reference found for subject "{target}" and version {reference.version}'
                raise InvalidSchema(text)
            if reference.name in visited:
                continue
            visited.add(reference.name)
            resolve(target, version.schema.references, depth + 1)
            resolved[reference.name] = version.schema.schema

    resolve(subject, references, 1)
    return resolved
