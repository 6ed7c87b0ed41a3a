"""The objects in memory for each schema, version and context.

A text is stored once for each id, as the JSON string that responses contain; `StoredSchema.text` decodes it. The
identity (`digest`) finds a schema by its contents. Schemas with equal contents and different ids exist only after
imports; the one with the smallest id is found.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

from ottla.registry.records import to_json
from ottla.schemas.model import Reference, Schema, SchemaType

_NUMBER: Final = attrgetter("version")


class StoredSchema:
    """A schema with its id."""

    __slots__ = ("_uses", "digest", "id", "is_canonical", "metadata", "references", "rule_set", "text_json", "type")

    def __init__(self, id_: int, schema: Schema, digest: bytes) -> None:
        self.id = id_
        self.type: SchemaType = schema.type
        self.text_json = to_json(schema.text)
        self.references: tuple[Reference, ...] = schema.references
        self.metadata: Mapping[str, Any] | None = schema.metadata
        self.rule_set: Mapping[str, Any] | None = schema.rule_set
        self.digest = digest
        self.is_canonical: bool | None = None
        """Whether the text is known to be in canonical form; None until a lookup has to know it."""
        # Most schemas have one version, for which a container would cost more than the version.
        self._uses: Version | dict[Version, None] | None = None

    @property
    def text(self) -> str:
        """The canonical text."""
        text: str = json.loads(self.text_json)
        return text

    @property
    def schema(self) -> Schema:
        """The schema as a value."""
        return Schema(self.type, self.text, self.references, self.metadata, self.rule_set)

    def has_contents(self, schema: Schema) -> bool:
        """Whether the contents are equal to `schema`."""
        return (self.type, self.text_json, self.references, self.metadata, self.rule_set) == (
            schema.type,
            to_json(schema.text),
            schema.references,
            schema.metadata,
            schema.rule_set,
        )

    @property
    def uses(self) -> Iterator[Version]:
        """The versions that have this schema, in the order of their registration."""
        if isinstance(self._uses, Version):
            return iter((self._uses,))
        return iter(self._uses or ())

    @property
    def is_used(self) -> bool:
        """Whether a version has this schema."""
        return bool(self._uses)

    @property
    def is_active(self) -> bool:
        """Whether a version that is not deleted has this schema."""
        return any(not version.deleted for version in self.uses)

    def add(self, version: Version) -> None:
        """Add a version."""
        if self._uses is None or self._uses is version:
            self._uses = version
        elif isinstance(self._uses, Version):
            self._uses = {self._uses: None, version: None}
        else:
            self._uses[version] = None

    def remove(self, version: Version) -> None:
        """Remove a version."""
        if isinstance(self._uses, dict):
            self._uses.pop(version, None)
        elif self._uses is version:
            self._uses = None


class Version:
    """One version of a subject. `timestamp_ms` is the time of its record, -1 if unknown."""

    __slots__ = ("deleted", "schema", "subject", "timestamp_ms", "version")

    def __init__(self, subject: str, version: int, schema: StoredSchema) -> None:
        self.subject = subject
        self.version = version
        self.schema = schema
        self.deleted = False
        self.timestamp_ms = -1


class Context:
    """The schemas and subjects of a context."""

    __slots__ = ("_twins", "digests", "highest_id", "name", "schemas", "subjects")

    def __init__(self, name: str) -> None:
        self.name = name
        self.subjects: dict[str, list[Version]] = {}
        """The versions of each subject, ascending."""
        self.schemas: dict[int, StoredSchema] = {}
        self.digests: dict[bytes, StoredSchema] = {}
        self._twins: dict[bytes, list[StoredSchema]] = {}
        self.highest_id = 0

    def intern(self, id_: int, schema: Schema, digest: bytes) -> StoredSchema | None:
        """Return the schema with this id; None if the id belongs to another text."""
        self.highest_id = max(self.highest_id, id_)
        stored = self.schemas.get(id_)
        if stored is None:
            stored = self.schemas[id_] = StoredSchema(id_, schema, digest)
            self._add_digest(stored)
            return stored
        return stored if stored.digest == digest or stored.text_json == to_json(schema.text) else None

    def forget(self, stored: StoredSchema) -> None:
        """Remove a schema that no version has."""
        del self.schemas[stored.id]
        twins = self._twins.get(stored.digest)
        if twins is None:
            del self.digests[stored.digest]
            return
        twins.remove(stored)
        self.digests[stored.digest] = min(twins, key=attrgetter("id"))
        if len(twins) == 1:
            del self._twins[stored.digest]

    def _add_digest(self, stored: StoredSchema) -> None:
        other = self.digests.setdefault(stored.digest, stored)
        if other is not stored:
            twins = self._twins.setdefault(stored.digest, [other])
            twins.append(stored)
            self.digests[stored.digest] = min(twins, key=attrgetter("id"))


def find_version(versions: list[Version], number: int) -> Version | None:
    """Return the version with this number."""
    if not versions or versions[-1].version < number:
        return None
    place = bisect_left(versions, number, key=_NUMBER)
    found = versions[place] if place < len(versions) else None
    return found if found is not None and found.version == number else None


def find_schema(versions: list[Version], schema: StoredSchema, *, deleted: bool = True) -> Version | None:
    """Return the newest version with this schema."""
    return next((item for item in reversed(versions) if item.schema is schema and (deleted or not item.deleted)), None)


def put_version(versions: list[Version], version: Version) -> None:
    """Insert a version at its place."""
    if not versions or versions[-1].version < version.version:
        versions.append(version)
        return
    versions.insert(bisect_left(versions, version.version, key=_NUMBER), version)
