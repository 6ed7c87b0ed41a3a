"""Questions about schemas that need parsing: the canonical form, the lookup of a schema, and compatibility.

No function changes the state. They raise RegistryError.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.registry import errors
from ottla.registry.comparisons import Question
from ottla.registry.identity import digest, merge_metadata, merge_rule_sets
from ottla.registry.parsed import HasFormats
from ottla.registry.records import to_json
from ottla.registry.settings import IMPORTING, LEVEL, METADATA, RULE_SETS
from ottla.registry.state import State
from ottla.registry.stored import StoredSchema, Version, find_schema
from ottla.registry.subjects import context_of, qualify
from ottla.schemas.compatibility import Level, messages
from ottla.schemas.compatibility import Version as Compared
from ottla.schemas.model import InvalidSchema, ParsedSchema, Reference, Schema, SchemaType

CONFLUENT_VERSION: Final = "confluent:version"
"""The property of the metadata with the version of the schema; a lookup without it finds the schema, too."""


class Canonical(NamedTuple):
    """A schema in the form in which it is stored and compared."""

    schema: Schema
    parsed: ParsedSchema
    digest: bytes


def canonicalize(state: State, subject: str, schema: Schema, *, normalize: bool, is_new: bool = False) -> Canonical:
    """Parse a schema of a subject; a new one must follow stricter rules. Raises RegistryError if it is not valid."""
    if not schema.text.strip():
        raise errors.invalid_schema("Empty schema")
    try:
        schema = _with_versions(state, subject, schema)
        parsed = state.parse(subject, schema, is_new=is_new)
        importing = state.mode(subject) in IMPORTING
        if normalize and not importing:
            references = tuple(sorted(set(schema.references), key=lambda item: (item.subject, item.version, item.name)))
            schema = replace(schema, text=parsed.normalized(), references=references)
            parsed = state.parse(subject, schema, is_new=is_new)
        else:
            schema = replace(schema, text=parsed.canonical)
    except InvalidSchema as error:
        text = f"Invalid schema of type {schema.type}, details: {error}"
        raise errors.invalid_schema(text) from error
    identity = digest(schema)
    state.parsed.remember(subject, schema, identity, parsed)
    return Canonical(schema, parsed, identity)


def validates_new(state: State, subject: str) -> bool:
    """Whether new schemas of a subject must follow stricter rules than stored ones."""
    return state.config(subject).get("validateNewSchemas") is not False


def normalizes(state: State, subject: str, requested: bool) -> bool:
    """Whether schemas of a subject are normalized: on request, or by its settings."""
    return requested or state.config(subject).get("normalize") is True


def lookup(state: State, subject: str, schema: Schema, *, normalize: bool, deleted: bool) -> Version | None:
    """Return the version of a subject that has a schema.

    A schema without metadata and rules finds one that has the metadata and rules that a registration would add.
    """
    found = _lookup(state, subject, schema, normalize=normalize, deleted=deleted)
    latest = state.version(subject, -1)
    if found is not None or latest is None:
        return found
    completed = with_metadata(state.config(subject), schema, latest.schema)
    return None if completed == schema else _lookup(state, subject, completed, normalize=normalize, deleted=deleted)


def registered(state: State, subject: str, schema: Schema, *, normalize: bool, only_latest: bool) -> Version | None:
    """Return the version that a registration finds instead of making one; only the latest is compared on request."""
    config = state.config(subject)
    if not schema.text.strip() or any(config.get(name) is not None for name in (*METADATA, *RULE_SETS)):
        return None
    if not only_latest:
        return _lookup(state, subject, schema, normalize=normalize, deleted=False)
    latest = state.version(subject, -1)
    if latest is None:
        return None
    canonical = canonicalize(state, subject, schema, normalize=normalize)
    return latest if canonical.digest == latest.schema.digest else equivalent(state, canonical, [latest])


def _lookup(state: State, subject: str, schema: Schema, *, normalize: bool, deleted: bool) -> Version | None:
    if not schema.text.strip():
        return None
    canonical = canonicalize(state, subject, schema, normalize=normalize)
    stored = state.schema_by_digest(context_of(subject), canonical.digest)
    if stored is not None:
        version = find_schema(state.versions(subject), stored, deleted=deleted)
        if version is not None:
            return version
    candidates = (version for version in reversed(state.versions(subject)) if deleted or not version.deleted)
    return equivalent(state, canonical, candidates)


def equivalent(state: State, canonical: Canonical, versions: Iterable[Version]) -> Version | None:
    """Return the first version that a schema finds though its identity differs.

    The schema may have no references where the version has some (a client that sends it with all references resolved),
    and one of both may lack the property `confluent:version`. Other registries may have stored the text in another form
    than the canonical one, such as Karapace with sorted keys.
    """
    schema = canonical.schema
    text_json, metadata = to_json(schema.text), _without_version(schema.metadata)
    for version in versions:
        other = version.schema
        if schema.type is not other.type or schema.rule_set != other.rule_set:
            continue
        if schema.references not in (other.references, ()) or metadata != _without_version(other.metadata):
            continue
        if not _version_fits(schema.metadata, other.metadata, version.version):
            continue
        if text_json == other.text_json or _has_equal_form(state, canonical, version):
            return version
    return None


def _has_equal_form(state: State, canonical: Canonical, version: Version) -> bool:
    """Whether the text of a version is another form of a schema. Stored texts are examined once, except of JSON."""
    stored = version.schema
    resolves = bool(stored.references) and not canonical.schema.references
    if stored.is_canonical and not resolves:
        return False
    try:
        other = state.parse_stored(version)
    except InvalidSchema:
        stored.is_canonical = True
        return False
    is_json = stored.type is SchemaType.JSON
    # The order of keys is part of the canonical text of JSON Schema, but not of its meaning.
    stored.is_canonical = other.canonical == stored.text and not is_json
    mine, theirs = canonical.parsed.canonical, other.canonical
    if is_json and len(mine) == len(theirs):
        return bool(json.loads(mine) == json.loads(theirs))
    if resolves and isinstance(other, HasFormats):
        theirs = other.formatted("resolved")
    return mine == theirs


def _version_fits(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, number: int) -> bool:
    mine, theirs = _confluent_version(new), _confluent_version(old)
    if mine is None:
        return True
    return mine == str(number) if theirs is None else mine == theirs


def _confluent_version(metadata: Mapping[str, Any] | None) -> str | None:
    value: str | None = (metadata or {}).get("properties", {}).get(CONFLUENT_VERSION)
    return value


def _without_version(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if _confluent_version(metadata) is None or metadata is None:
        return metadata or {}
    rest = {name: value for name, value in metadata["properties"].items() if name != CONFLUENT_VERSION}
    others = {name: value for name, value in metadata.items() if name != "properties"}
    return {**others, "properties": rest} if rest else others


def with_metadata(
    config: Mapping[str, Any], schema: Schema, previous: StoredSchema | None, number: int | None = None
) -> Schema:
    """Return a schema with the metadata and rules that the settings and the previous version add.

    `number` sets the property `confluent:version`.
    """
    metadata, rules = schema.metadata, schema.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rules = previous.rule_set if rules is None else rules
    metadata = merge_metadata(merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = merge_rule_sets(merge_rule_sets(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    if number is not None:
        metadata = merge_metadata(metadata, {"properties": {CONFLUENT_VERSION: str(number)}})
    return replace(schema, metadata=metadata, rule_set=rules)


def incompatibilities(state: State, subject: str, canonical: Canonical, versions: list[Version]) -> list[str]:
    """Return why a schema is incompatible with previous versions (ascending), in the form of Confluent's messages.

    Raises NotCompared for large schemas that must be compared in a thread first.
    """
    config = state.config(subject)
    group = config.get("compatibilityGroup")
    if group is not None:
        wanted = _property(canonical.schema.metadata, group)
        versions = [version for version in versions if _property(version.schema.metadata, group) == wanted]
    level = Level(config[LEVEL])
    if level is Level.NONE:
        return []
    newest_first = versions[::-1] if level.is_transitive else versions[-1:]
    question = Question(
        level,
        context_of(subject),
        canonical.digest,
        tuple((version.version, version.schema.digest) for version in newest_first),
        state.parsed.generation,
    )
    try:
        conflict = state.comparisons.check(question, canonical.parsed, newest_first, partial(_parsed, state))
    except InvalidSchema as error:
        raise errors.invalid_schema(f"An earlier schema of subject {subject} is not valid: {error}") from error
    return messages(level, conflict, validate_fields=config.get("validateFields") is True)


def _parsed(state: State, version: Version) -> Compared:
    return Compared(version.version, state.parse_stored(version))


def _property(metadata: Mapping[str, Any] | None, name: str) -> Any:
    return (metadata or {}).get("properties", {}).get(name)


def _with_versions(state: State, subject: str, schema: Schema) -> Schema:
    """Return a schema whose references to the latest version (-1) have its number. Raises InvalidSchema."""
    if all(reference.version != -1 for reference in schema.references):
        return schema
    fixed: list[Reference] = []
    for reference in schema.references:
        version = state.version(qualify(subject, reference.subject), reference.version)
        if version is None:
            raise InvalidSchema(f'No schema reference found for subject "{reference.subject}" and version -1')
        fixed.append(reference._replace(version=version.version))
    return replace(schema, references=tuple(fixed))
