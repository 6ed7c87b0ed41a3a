"""The state of the registry: what the records of the topic `_schemas` add up to.

`apply` takes the records in their order; a record that is not valid is skipped, counted in `skipped`, and logged once
for each reason. The result depends only on the last record of each key, so a compacted topic gives the same state. The
queries return live objects, which callers must not change.

Costs: one text for each id; about 700 bytes for each schema besides its text. Listings of subjects sort the names once.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.registry import records
from ottla.registry.comparisons import Comparisons
from ottla.registry.errors import InvalidValue
from ottla.registry.identity import digest, digest_of_guid
from ottla.registry.parsed import ParsedSchemas
from ottla.registry.records import Record, SchemaKey
from ottla.registry.settings import Settings
from ottla.registry.stored import Context, StoredSchema, Version, find_schema, find_version, put_version
from ottla.registry.subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    context_of,
    context_prefix,
    matches,
    qualify,
    split,
)
from ottla.schemas.model import ParsedSchema, Schema

logger = logging.getLogger(__name__)

_LAST_CHARACTER: Final = "\U0010ffff"
_MOST_REASONS: Final = 100


class State:
    """Subjects, versions, ids, settings and modes of all contexts."""

    def __init__(self) -> None:
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context(DEFAULT_CONTEXT)}
        self.settings = Settings()
        self.parsed = ParsedSchemas(self._referenced)
        self.comparisons = Comparisons()
        self.skipped: Counter[str] = Counter()
        self.next_offset = 0
        self._named_contexts: set[str] = set()
        self._referrers: dict[SchemaKey, dict[StoredSchema, str]] = {}
        self._key_bytes: dict[bytes, bytes] = {}
        self._names: list[str] | None = None

    # Records

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp_ms: int = -1) -> None:
        """Apply a record of the topic."""
        self.next_offset = offset + 1
        if key is None:
            self._skip("a record without a key", offset)
            return
        try:
            self._apply(key, value, timestamp_ms)
        except (ValueError, RecursionError) as error:
            self._skip(f"an invalid record: {error}", offset)

    def as_records(self, changed: Iterable[Record]) -> list[Record]:
        """Return records to write, with the bytes of their keys as the topic already has them.

        Karapace writes keys with another order of fields in some topics. Compaction compares bytes: a record replaces
        or deletes such a key only if it is equal byte for byte. A topic may have both forms, so a delete is for both.
        """
        if not self._key_bytes:
            return list(changed)
        written: list[Record] = []
        for key, value in changed:
            found = self._key_bytes.get(key, key)
            written.append(Record(found, value))
            if value is None and found != key:
                written.append(Record(key, None))
        return written

    def _apply(self, data: bytes, value: bytes | None, timestamp_ms: int) -> None:
        key = records.decode_key(data)
        if not _is_canonical(data) and key is not None:
            canonical = records.encode_key(key)
            if canonical != data:
                self._key_bytes[canonical] = data
        match key:
            case SchemaKey():
                self._apply_schema(key, value, timestamp_ms)
            case records.ConfigKey(subject):
                self.settings.set_config(subject, None if value is None else records.decode_object(value))
            case records.ModeKey(subject):
                self.settings.set_mode(subject, None if value is None else records.decode_object(value).get("mode"))
            case records.DeleteSubjectKey(subject):
                if value is not None:
                    self._delete_up_to(subject, records.decode_version(value))
            case records.ClearSubjectKey(subject):
                if value is not None:
                    self._clear(subject)
            case records.ContextKey(context):
                (self._named_contexts.discard if value is None else self._named_contexts.add)(context)
            case records.NoopKey(context):
                if context is not None and value is not None:
                    known = self._context(context)
                    known.highest_id = max(known.highest_id, records.decode_highest_id(value))
            case None:
                raise InvalidValue("the type of the key is unknown")

    def _apply_schema(self, key: SchemaKey, data: bytes | None, timestamp_ms: int) -> None:
        if data is None:
            self._remove(key)
            return
        value = records.decode_schema(data)
        context = self._context(context_of(key.subject))
        stored = context.intern(value.id, value.schema, value.md5 or digest(value.schema))
        if stored is None:
            raise InvalidValue(f"the id {value.id} of a record belongs to another schema")
        version = self._put(key, stored)
        if value.deleted:
            self.parsed.clear()
        version.deleted = value.deleted
        version.timestamp_ms = timestamp_ms

    def _put(self, key: SchemaKey, stored: StoredSchema) -> Version:
        context = self._context(context_of(key.subject))
        versions = context.subjects.get(key.subject)
        if versions is None:
            versions = context.subjects[key.subject] = []
            if self._names is not None:
                insort(self._names, key.subject)
        version = find_version(versions, key.version)
        if version is not None and version.schema is not stored:
            self._unuse(context, version)
            version.schema = stored
        if version is None:
            version = Version(key.subject, key.version, stored)
            put_version(versions, version)
        if stored.references and not stored.is_used:
            for target in self._targets(context, stored):
                self._referrers.setdefault(target, {})[stored] = context.name
        stored.add(version)
        return version

    def _remove(self, key: SchemaKey) -> None:
        self.parsed.clear()
        self.discard(key)

    def discard(self, key: SchemaKey) -> None:
        """Remove a version. Parsed schemas remain in the cache, which is valid only if the version comes back."""
        context = self._context(context_of(key.subject))
        versions = context.subjects.get(key.subject, [])
        version = find_version(versions, key.version)
        if version is None:
            return
        versions.remove(version)
        self._unuse(context, version)
        if not versions:
            del context.subjects[key.subject]
            if self._names is not None:
                del self._names[bisect_left(self._names, key.subject)]

    def _unuse(self, context: Context, version: Version) -> None:
        stored = version.schema
        stored.remove(version)
        if stored.is_used:
            return
        context.forget(stored)
        for target in self._targets(context, stored):
            referrers = self._referrers.get(target, {})
            referrers.pop(stored, None)
            if not referrers:
                self._referrers.pop(target, None)

    def _targets(self, context: Context, stored: StoredSchema) -> Iterator[SchemaKey]:
        parent = context_prefix(context.name)
        return (SchemaKey(qualify(parent, item.subject), item.version) for item in stored.references)

    def _delete_up_to(self, subject: str, number: int) -> None:
        self.parsed.clear()
        for version in self.versions(subject):
            if version.version <= number:
                version.deleted = True

    def _clear(self, subject: str | None) -> None:
        removed = [
            SchemaKey(name, version.version)
            for name, versions in self._matching(subject)
            for version in versions
            if version.deleted
        ]
        for key in removed:
            self._remove(key)

    def _context(self, name: str) -> Context:
        context = self.contexts.get(name)
        if context is None:
            context = self.contexts[name] = Context(name)
        return context

    def _skip(self, reason: str, offset: int) -> None:
        # Reasons have values of the records, of which a topic may have many.
        if reason not in self.skipped and len(self.skipped) >= _MOST_REASONS:
            reason = "a record for another reason"
        self.skipped[reason] += 1
        if self.skipped[reason] == 1:
            logger.warning("Skipping %s, at offset %d of the topic of schemas", reason, offset)

    def _referenced(self, subject: str, number: int, deleted: bool) -> Version | None:
        return self.version(subject, number, deleted=deleted)

    # Versions and subjects

    def versions(self, subject: str) -> list[Version]:
        """Return all versions of a subject, deleted ones too, ascending."""
        context = self.contexts.get(context_of(subject))
        return [] if context is None else context.subjects.get(subject, [])

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        """Return a version of a subject; -1 is the latest one. `deleted` includes soft-deleted ones."""
        versions = self.versions(subject)
        if number == -1:
            return next((item for item in reversed(versions) if not item.deleted), None)
        found = find_version(versions, number)
        return found if found is not None and (deleted or not found.deleted) else None

    def has_subject(self, subject: str | None, *, deleted: bool = False) -> bool:
        """Whether the subject, or the context that it stands for, has versions."""
        return any(deleted or not version.deleted for _, versions in self._matching(subject) for version in versions)

    def subjects_with(self, prefix: str, *, deleted: bool) -> Iterator[str]:
        """Yield the names of `subjects` that have a version, or whose versions are all soft-deleted."""
        in_default = self.contexts[DEFAULT_CONTEXT].subjects
        for name in self.subjects(prefix):
            versions = in_default.get(name) or self.versions(name)
            is_deleted = versions[-1].deleted and all(version.deleted for version in versions)
            if is_deleted == deleted:
                yield name

    def subjects(self, prefix: str = ALL_CONTEXTS) -> Iterator[str]:
        """Yield the names of subjects with versions, sorted; deleted ones too.

        The prefix has a context, or means the default one; `:*:` matches every context.
        """
        place = split(prefix)
        if place.context != "*":
            yield from self._subjects(prefix)
            return
        if not place.subject:
            yield from self._sorted_names()
            return
        yield from (name for name in self._sorted_names() if split(name).subject.startswith(place.subject))

    def matching_subjects(self, subject: str | None) -> list[str]:
        """Return the subjects with versions, deleted ones too, that are `subject` or in the context it stands for."""
        return [name for name, _ in self._matching(subject)]

    def context_names(self) -> list[str]:
        """Return the default context, then the others, sorted."""
        return [DEFAULT_CONTEXT, *sorted(self._named_contexts)]

    def has_context(self, name: str) -> bool:
        """Whether a record of the topic names this context."""
        return name in self._named_contexts

    def _subjects(self, prefix: str) -> Iterator[str]:
        names = self._sorted_names()
        first, last = bisect_left(names, prefix), bisect_left(names, prefix + _LAST_CHARACTER)
        found = names[first:last]
        if prefix.startswith(":."):
            return iter(found)
        return (name for name in found if context_of(name) == DEFAULT_CONTEXT)

    def _sorted_names(self) -> list[str]:
        if self._names is None:
            self._names = sorted(name for context in self.contexts.values() for name in context.subjects)
        return self._names

    def _matching(self, subject: str | None) -> Iterator[tuple[str, list[Version]]]:
        if subject is not None and split(subject).subject:
            versions = self.versions(subject)
            yield from [(subject, versions)] if versions else []
            return
        for context in self.contexts.values():
            if matches(subject, context_prefix(context.name)):
                yield from context.subjects.items()

    # Schemas

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> tuple[StoredSchema, Version] | None:
        """Return a schema and one of its versions, of `subject` if it is given.

        The subject selects the context. A subject of the default context that does not have the schema is searched in
        the other contexts, too.
        """
        place = split(subject or "")
        found = self._schema_in(schema_id, place.context, str(place) if place.subject else "")
        if found is not None or not place.subject or place.context != DEFAULT_CONTEXT:
            return found
        for name in self.context_names()[1:]:
            found = self._schema_in(schema_id, name, context_prefix(name) + place.subject)
            if found is not None:
                return found
        return self._schema_in(schema_id, DEFAULT_CONTEXT, "")

    def _schema_in(self, schema_id: int, context: str, subject: str) -> tuple[StoredSchema, Version] | None:
        known = self.contexts.get(context)
        stored = None if known is None else known.schemas.get(schema_id)
        if known is None or stored is None:
            return None
        # A subject has few versions, a schema such as "string" may have thousands of subjects.
        version = find_schema(known.subjects.get(subject, []), stored) if subject else next(stored.uses, None)
        return None if version is None else (stored, version)

    def schema_by_digest(self, context: str, identity: bytes) -> StoredSchema | None:
        """Return the schema with this identity."""
        known = self.contexts.get(context)
        return None if known is None else known.digests.get(identity)

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """Return the contexts and ids that a guid has, sorted."""
        identity = digest_of_guid(guid)
        if identity is None:
            return []
        found = ((name, self.schema_by_digest(name, identity)) for name in self.context_names())
        return sorted((name, stored.id) for name, stored in found if stored is not None)

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[tuple[str, StoredSchema]]:
        """Return the schemas that reference a version, with their contexts, sorted by context and id."""
        found = self._referrers.get(SchemaKey(subject, number), {})
        items = ((context, stored) for stored, context in found.items() if deleted or stored.is_active)
        return sorted(items, key=lambda item: (item[0], item[1].id))

    def highest_id(self, subject: str | None) -> int:
        """Return the highest id that the context of a subject has ever had."""
        context = self.contexts.get(context_of(subject))
        return 0 if context is None else context.highest_id

    # Parsing and settings

    def parse(self, subject: str, schema: Schema, *, is_new: bool) -> ParsedSchema:
        """Parse a schema of a subject; a new one must follow stricter rules. Raises InvalidSchema."""
        return self.parsed.parse(subject, schema, is_new=is_new)

    def parse_stored(self, version: Version) -> ParsedSchema:
        """Parse the schema of a version. Raises InvalidSchema."""
        return self.parsed.parse_stored(version)

    def mode(self, subject: str | None) -> str:
        """Return the mode that applies to a subject."""
        return self.settings.mode_in_scope(subject)

    def config(self, subject: str | None) -> Mapping[str, Any]:
        """Return the settings that apply to a subject."""
        return self.settings.config_in_scope(subject)


def _is_canonical(key: bytes) -> bool:
    return key.startswith(b'{"keytype":"SCHEMA","subject":"') and key.endswith(b',"magic":1}')
