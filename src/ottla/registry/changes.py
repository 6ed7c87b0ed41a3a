"""Requests that change the state: each function returns the records to write and its result, or raises RegistryError.

The functions do not change the state: `State.apply` does, with the records, after they are written. They are called on
the primary, with a state that has all records. A caller that writes nothing may ignore an empty list of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ottla.registry import errors, lookup, records
from ottla.registry.identity import digest
from ottla.registry.records import INT_MAX, Record, SchemaKey, SchemaValue
from ottla.registry.settings import IMPORTING, READ_ONLY, in_order
from ottla.registry.state import State
from ottla.registry.stored import Version, find_schema
from ottla.registry.subjects import DEFAULT_CONTEXT, context_of, context_prefix, normalize, split
from ottla.schemas.model import Schema

T = TypeVar("T")
Change: TypeAlias = tuple[list[Record], T]


@dataclass(frozen=True, slots=True)
class Registration:
    """A request to register a schema.

    `id` is -1 unless an import gives it. `version` is 0 for the next one, -1 for the next one with the property
    `confluent:version`, or the number that the version must get. `force` omits the compatibility check.
    """

    schema: Schema
    id: int = -1
    version: int = 0
    normalize: bool = False
    force: bool = False


class Registered(NamedTuple):
    """The version that a registration has found or made."""

    id: int
    version: int
    schema: Schema
    digest: bytes


def register(state: State, subject: str, request: Registration) -> Change[Registered]:
    """Register a schema, or find it. A schema that the subject has is found in every mode."""
    found = _found(state, subject, request)
    if found is not None:
        return [], Registered(found.schema.id, found.version, found.schema.schema, found.schema.digest)
    _check_register_mode(state, subject, request.id)
    versions = state.versions(subject)
    active = [version for version in versions if not version.deleted]
    number = versions[-1].version + 1 if versions else 1
    importing = state.mode(subject) in IMPORTING
    schema = request.schema if importing else _completed(state, subject, request, active, number)
    is_new = request.id < 0 and lookup.validates_new(state, subject)
    canonical = lookup.canonicalize(state, subject, schema, normalize=request.normalize, is_new=is_new)
    stored = state.schema_by_digest(context_of(subject), canonical.digest)
    existing = None
    if stored is not None and request.id in (-1, stored.id):
        existing = find_schema(versions, stored, deleted=False)
    if existing is None and stored is None:
        existing = lookup.equivalent(state, canonical, reversed(active))
    if existing is not None and request.version == 0 and request.id in (-1, existing.schema.id):
        return [], Registered(existing.schema.id, existing.version, canonical.schema, existing.schema.digest)
    if not importing and not request.force:
        reasons = lookup.incompatibilities(state, subject, canonical, active)
        if reasons:
            raise errors.incompatible_schema(subject, reasons)
    schema_id = stored.id if stored is not None and request.id in (-1, stored.id) else request.id
    return _write(state, subject, canonical, _Place(schema_id, _number(request, number, importing)))


def _found(state: State, subject: str, request: Registration) -> Version | None:
    is_latest = request.version == -1
    found = lookup.registered(state, subject, request.schema, normalize=request.normalize, only_latest=is_latest)
    if found is None or request.id not in (-1, found.schema.id):
        return None
    return found if request.version <= 0 or request.version == found.version else None


class _Place(NamedTuple):
    id: int
    version: int


def _write(state: State, subject: str, canonical: lookup.Canonical, place: _Place) -> Change[Registered]:
    context = context_of(subject)
    written: list[Record] = []
    if context != DEFAULT_CONTEXT and not state.has_context(context):
        written.append(records.context_record(context))
    schema_id = place.id
    if schema_id >= 0:
        _check_contents(state, context, schema_id, canonical.schema)
    else:
        schema_id = state.highest_id(subject) + 1
        if schema_id > INT_MAX:
            raise errors.store_error("Error while registering the schema: the context has no more ids")
    for version in state.versions(subject):
        is_obsolete = version.deleted and version.schema.id == schema_id and version.version < place.version
        # Its number would make a lookup by id ambiguous. References go to the number, so they keep it.
        if is_obsolete and not state.referrers(subject, version.version, deleted=True):
            written.append(Record(records.encode_key(SchemaKey(subject, version.version)), None))
    replaced = state.version(subject, place.version, deleted=True)
    if replaced is not None and replaced.schema.id > schema_id:
        written += _highest_ids(state, [replaced])
    key = records.encode_key(SchemaKey(subject, place.version))
    value = records.encode_schema(subject, place.version, SchemaValue(schema_id, canonical.schema))
    written.append(Record(key, value))
    result = Registered(schema_id, place.version, canonical.schema, canonical.digest)
    return state.as_records(written), result


def _check_register_mode(state: State, subject: str, schema_id: int) -> None:
    _check_writable(state, subject)
    mode = state.mode(subject)
    place = f"Subject {subject} in context {_context_text(subject)}"
    if schema_id >= 0 and mode not in IMPORTING:
        raise errors.not_permitted(f"{place} is not in import mode")
    if schema_id < 0 and mode != "READWRITE":
        raise errors.not_permitted(f"{place} is not in read-write mode")


def _check_writable(state: State, subject: str | None) -> None:
    if state.mode(subject) in READ_ONLY:
        name = "null" if subject is None else subject
        raise errors.not_permitted(f"Subject {name} in context {_context_text(subject)} is in read-only mode")


def _context_text(subject: str | None) -> str:
    return context_prefix(context_of(subject))


def _completed(state: State, subject: str, request: Registration, active: list[Version], number: int) -> Schema:
    """Return the schema with the metadata and rules that the previous version and the settings add."""
    schema = request.schema
    previous = active[-1].schema if active else None
    if not schema.text.strip():
        if previous is None:
            raise errors.invalid_schema("Empty schema")
        schema = replace(schema, type=previous.type, text=previous.text, references=previous.references)
    config = state.config(subject)
    completed = lookup.with_metadata(config, schema, previous)
    has_version = lookup.CONFLUENT_VERSION in (completed.metadata or {}).get("properties", {})
    if request.version != 0 or has_version:
        completed = lookup.with_metadata(config, schema, previous, number)
    return completed


def _number(request: Registration, number: int, importing: bool) -> int:
    if request.version <= 0:
        if number > INT_MAX:
            raise errors.invalid_schema("The subject has no more versions")
        return number
    if request.version != number and not importing:
        raise errors.invalid_schema("Version is not one more than previous version")
    return request.version


def _check_contents(state: State, context: str, schema_id: int, schema: Schema) -> None:
    known = state.contexts.get(context)
    stored = None if known is None else known.schemas.get(schema_id)
    if stored is not None and not stored.has_contents(schema):
        place = context_prefix(context)
        raise errors.not_permitted(f"Overwrite new schema with id {schema_id} in context {place} is not permitted.")


def delete_version(state: State, subject: str, number: int, *, permanent: bool) -> Change[int]:
    """Delete a version of a subject; -1 is the latest one."""
    version = state.version(subject, number, deleted=True)
    if version is None:
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)
    if version.deleted and not permanent:
        raise errors.version_soft_deleted(subject, number)
    _check_writable(state, subject)
    if state.referrers(subject, version.version, deleted=permanent):
        raise errors.reference_exists(subject, version.version)
    if permanent and not version.deleted:
        raise errors.version_not_soft_deleted(subject, version.version)
    key = records.encode_key(SchemaKey(subject, version.version))
    if permanent:
        written = _permanently(state, [version])
        if len(state.versions(subject)) == 1:
            written += _forget_settings(state, subject)
        return state.as_records(written), version.version
    stored = version.schema
    # A record may have the identity of other contents: Confluent's registry can encrypt metadata.
    md5 = None if digest(stored.schema) == stored.digest else stored.digest
    value = records.encode_schema(subject, version.version, SchemaValue(stored.id, stored.schema, True, md5))
    return state.as_records([Record(key, value)]), version.version


def delete_subject(state: State, subject: str, *, permanent: bool) -> Change[list[int]]:
    """Delete all versions of a subject."""
    if not state.has_subject(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not state.has_subject(subject):
        raise errors.subject_soft_deleted(subject)
    _check_writable(state, subject)
    versions = [version for version in state.versions(subject) if permanent or not version.deleted]
    for version in versions:
        if _is_referenced_elsewhere(state, version, deleted=permanent):
            raise errors.reference_exists(subject, version.version)
        if permanent and not version.deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [version.version for version in versions]
    if not permanent:
        written = [records.delete_subject_record(subject, max(numbers, default=0))]
    else:
        # Descending, since a version may reference a smaller one.
        written = _permanently(state, reversed(versions)) + _forget_settings(state, subject)
    return state.as_records(written), numbers


def _is_referenced_elsewhere(state: State, version: Version, *, deleted: bool) -> bool:
    """Whether another subject has a schema that references the version."""
    referrers = state.referrers(version.subject, version.version, deleted=deleted)
    return any(
        use.subject != version.subject for _, stored in referrers for use in stored.uses if deleted or not use.deleted
    )


def _permanently(state: State, versions: Iterable[Version]) -> list[Record]:
    """Return the records that delete versions. The highest ids come first, so that no state in between lacks them."""
    removed = list(versions)
    keys = (records.encode_key(SchemaKey(version.subject, version.version)) for version in removed)
    return [*_highest_ids(state, removed), *(Record(key, None) for key in keys)]


def _highest_ids(state: State, removed: Iterable[Version]) -> list[Record]:
    """Return the records that keep the highest id of a context from being used again when its schema is removed."""
    highest: dict[str, int] = {}
    for version in removed:
        context = context_of(version.subject)
        if version.schema.id == state.highest_id(version.subject):
            highest[context] = version.schema.id
    return [records.highest_id_record(context, found) for context, found in highest.items()]


def _forget_settings(state: State, subject: str) -> list[Record]:
    written: list[Record] = []
    if state.settings.stored_mode(subject) is not None:
        written.append(records.mode_record(subject, None))
    if state.settings.stored_config(subject) is not None:
        written.append(records.config_record(subject, None))
    return written


def update_config(state: State, subject: str | None, update: Mapping[str, Any]) -> Change[Mapping[str, Any]]:
    """Change settings. A value of None removes the setting; settings that are absent in `update` stay."""
    _check_writable(state, subject)
    merged = {**(state.settings.stored_config(subject) or {}), **update}
    config = in_order({name: value for name, value in merged.items() if value is not None})
    return state.as_records([records.config_record(subject, config)]), config


def delete_config(state: State, subject: str | None) -> Change[Mapping[str, Any]]:
    """Delete settings and return them."""
    config = state.settings.config(subject)
    if config is None:
        raise errors.subject_not_found(subject)
    _check_writable(state, subject)
    return state.as_records([records.config_record(subject, None)]), config


def update_mode(state: State, subject: str | None, mode: str | None, *, force: bool) -> Change[str | None]:
    """Set or remove a mode. IMPORT requires that the subject or context has no versions, unless forced."""
    written: list[Record] = []
    if mode == "IMPORT" and state.mode(subject) != "IMPORT" and not force:
        if state.has_subject(subject):
            raise errors.not_permitted("Cannot import since found existing subjects")
        written = _empty_for_import(state, subject)
    written.append(records.mode_record(subject, mode))
    return state.as_records(written), mode


def _empty_for_import(state: State, subject: str | None) -> list[Record]:
    deleted = [version for name in state.matching_subjects(subject) for version in state.versions(name)]
    for version in deleted:
        if state.referrers(version.subject, version.version, deleted=True):
            raise errors.reference_exists(version.subject, version.version)
    return [*_permanently(state, deleted), records.clear_subject_record(subject)]


def delete_mode(state: State, subject: str | None, *, recursive: bool) -> Change[str | None]:
    """Delete a mode and return it; with `recursive`, also the modes of the subjects of a context."""
    mode = state.settings.mode(subject)
    if mode is None and not recursive:
        raise errors.subject_not_found(subject)
    written = [records.mode_record(subject, None)]
    if recursive and (subject is None or not split(subject).subject):
        context = context_of(subject)
        below = state.settings.subjects_with_mode(context_prefix(context))
        written += [records.mode_record(name, None) for name in below if context_of(name) == context]
    return state.as_records(written), mode


def delete_context(state: State, name: str) -> Change[None]:
    """Delete a context, which must have no versions."""
    context = normalize(name)
    if state.has_subject(context, deleted=True):
        raise errors.context_not_empty(context)
    return state.as_records([records.context_record(context_of(context), exists=False)]), None
