"""The records of the topic `_schemas`, byte for byte as Confluent's registry writes them.

A key is JSON with `keytype`, the fields of the type, and `magic`, in this order. A value is JSON; null deletes the key.

- SCHEMA: one version of a subject. `schemaType` is omitted for AVRO, `references` if there are none.
- CONFIG, MODE: settings and mode of a subject, of a context (`:.staging:`), or of all (subject null).
- DELETE_SUBJECT: a soft delete of all versions up to `version`.
- CLEAR_SUBJECT: forget the soft-deleted versions, when the mode becomes IMPORT.
- CONTEXT: a context that has had a subject.
- NOOP: nothing. Ottla also writes NOOP keys with a context in `subject`: their value keeps the highest id of the
  context when the schema with this id is deleted permanently, so that the id is not used again after a compaction.
  Other registries ignore values of NOOP.

The decoders return None for unknown key types and raise ValueError for a key or value of a known type that is not
valid. Unknown properties are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.registry.errors import InvalidValue
from ottla.registry.identity import canonical_metadata, canonical_rule_set
from ottla.schemas.model import Reference, Schema, SchemaType

_TENANT: Final = "default"
_AVRO: Final = SchemaType.AVRO
INT_MAX: Final = 2**31 - 1


class Record(NamedTuple):
    """A record to write. A null value deletes the key."""

    key: bytes
    value: bytes | None


class SchemaKey(NamedTuple):
    """The key of a version."""

    subject: str
    version: int


class ConfigKey(NamedTuple):
    """The key of settings; None for the global ones."""

    subject: str | None


class ModeKey(NamedTuple):
    """The key of a mode; None for the global one."""

    subject: str | None


class DeleteSubjectKey(NamedTuple):
    """The key of a soft delete."""

    subject: str


class ClearSubjectKey(NamedTuple):
    """The key of a clearing; None for the default context."""

    subject: str | None


class ContextKey(NamedTuple):
    """The key of a context."""

    context: str


class NoopKey(NamedTuple):
    """The key of a record without effect, or of the highest id of a context."""

    context: str | None = None


Key: TypeAlias = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


class SchemaValue(NamedTuple):
    """The value of a version. `md5` is the identity, if the record has it."""

    id: int
    schema: Schema
    deleted: bool = False
    md5: bytes | None = None


_KEY_TYPES: Final[Mapping[type, str]] = {
    ConfigKey: "CONFIG",
    ModeKey: "MODE",
    DeleteSubjectKey: "DELETE_SUBJECT",
    ClearSubjectKey: "CLEAR_SUBJECT",
}
_SUBJECT_KEYS: Final[Mapping[str, type[ConfigKey | ModeKey | ClearSubjectKey]]] = {
    "CONFIG": ConfigKey,
    "MODE": ModeKey,
    "CLEAR_SUBJECT": ClearSubjectKey,
}
# Most keys have this form, which needs no parser.
_PLAIN_KEY: Final = re.compile(rb'\{"keytype":"SCHEMA","subject":"([^"\\]*)","version":([1-9][0-9]{0,8}),"magic":1\}')
_DECODE: Final = json.JSONDecoder().decode
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def to_json(value: Any) -> bytes:
    """Return a value as compact JSON in UTF-8."""
    return _ENCODER.encode(value).encode()


def encode_key(key: Key) -> bytes:
    """Return the bytes of a key."""
    match key:
        case SchemaKey(subject, version):
            fields: dict[str, Any] = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        case ContextKey(context):
            fields = {"keytype": "CONTEXT", "tenant": _TENANT, "context": context, "magic": 0}
        case NoopKey(None):
            fields = {"keytype": "NOOP", "magic": 0}
        case NoopKey(context):
            fields = {"keytype": "NOOP", "subject": f":{context}:", "magic": 0}
        case _:
            fields = {"keytype": _KEY_TYPES[type(key)], "subject": key.subject, "magic": 0}
    return to_json(fields)


def decode_key(data: bytes) -> Key | None:
    """Return the key; None for unknown types. Raises ValueError."""
    plain = _PLAIN_KEY.fullmatch(data)
    if plain is not None:
        return SchemaKey(plain[1].decode(), int(plain[2]))
    fields = _DECODE(data.decode())
    if not isinstance(fields, dict):
        raise InvalidValue("the key is not a JSON object")
    kind = fields.get("keytype")
    if kind == "SCHEMA":
        if fields.get("magic") not in (0, 1):
            raise InvalidValue(f"the magic byte {fields.get('magic')} of the key is unknown")
        return SchemaKey(_text(fields, "subject"), _number(fields, "version", 1))
    if kind == "CONTEXT":
        return ContextKey(_text(fields, "context"))
    if kind == "NOOP":
        subject = fields.get("subject")
        return NoopKey(subject.strip(":") if isinstance(subject, str) else None)
    if kind == "DELETE_SUBJECT":
        return DeleteSubjectKey(_text(fields, "subject"))
    if isinstance(kind, str) and kind in _SUBJECT_KEYS:
        subject = fields.get("subject")
        # The mode IMPORT of the default context has an empty name in some releases.
        return _SUBJECT_KEYS[kind](_text(fields, "subject") if subject else None)
    return None


def encode_schema(subject: str, version: int, value: SchemaValue) -> bytes:
    """Return the value of a version."""
    schema = value.schema
    fields: dict[str, Any] = {"subject": subject, "version": version, "id": value.id}
    if value.md5 is not None:
        fields["md5"] = base64.b64encode(value.md5).decode()
    if schema.type is not _AVRO:
        fields["schemaType"] = schema.type
    if schema.references:
        fields["references"] = [reference._asdict() for reference in schema.references]
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    fields["schema"] = schema.text
    fields["deleted"] = value.deleted
    return to_json(fields)


def decode_schema(data: bytes) -> SchemaValue:
    """Return the value of a version. Raises ValueError."""
    fields = decode_object(data)
    metadata, rule_set = fields.get("metadata"), fields.get("ruleSet")
    references = fields.get("references")
    kind = fields.get("schemaType")
    schema = Schema(
        _AVRO if kind is None else SchemaType(kind),
        _text(fields, "schema"),
        tuple(map(decode_reference, references)) if references else (),
        None if metadata is None else canonical_metadata(metadata),
        None if rule_set is None else canonical_rule_set(rule_set),
    )
    md5 = fields.get("md5")
    return SchemaValue(_number(fields, "id", 0), schema, fields.get("deleted") is True, _md5(md5) if md5 else None)


def decode_reference(value: Any) -> Reference:
    """Return a reference. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise InvalidValue("a reference is not an object")
    return Reference(_text(value, "name"), _text(value, "subject"), _number(value, "version", -1))


def decode_object(data: bytes) -> dict[str, Any]:
    """Return the value of a record. Raises ValueError."""
    fields = _DECODE(data.decode())
    if not isinstance(fields, dict):
        raise InvalidValue("the value is not a JSON object")
    return fields


def decode_version(data: bytes) -> int:
    """Return the version up to which a subject is deleted. Raises ValueError."""
    return _number(decode_object(data), "version", 0)


def config_record(subject: str | None, config: Mapping[str, Any] | None) -> Record:
    """Return the record that sets or deletes settings."""
    value = None if config is None else to_json(_with_subject(subject, config))
    return Record(encode_key(ConfigKey(subject)), value)


def mode_record(subject: str | None, mode: str | None) -> Record:
    """Return the record that sets or deletes a mode."""
    value = None if mode is None else to_json(_with_subject(subject, {"mode": mode}))
    return Record(encode_key(ModeKey(subject)), value)


def delete_subject_record(subject: str, version: int) -> Record:
    """Return the record of the soft delete of all versions up to `version`."""
    return Record(encode_key(DeleteSubjectKey(subject)), to_json({"subject": subject, "version": version}))


def clear_subject_record(subject: str | None) -> Record:
    """Return the record that forgets the soft-deleted versions."""
    return Record(encode_key(ClearSubjectKey(subject)), to_json(_with_subject(subject, {})))


def context_record(context: str, *, exists: bool = True) -> Record:
    """Return the record that creates or deletes a context."""
    value = to_json({"tenant": _TENANT, "context": context}) if exists else None
    return Record(encode_key(ContextKey(context)), value)


def highest_id_record(context: str, highest_id: int) -> Record:
    """Return the record that keeps the highest id of a context."""
    return Record(encode_key(NoopKey(context)), to_json({"maxId": highest_id}))


def decode_highest_id(data: bytes) -> int:
    """Return the highest id of a context. Raises ValueError."""
    return _number(decode_object(data), "maxId", 0)


NOOP: Final = Record(encode_key(NoopKey()), None)
"""A record without effect."""


def _with_subject(subject: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict(fields) if subject is None else {"subject": subject, **fields}


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is not a string")
    return value


def _number(fields: Mapping[str, Any], name: str, minimum: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not minimum <= value <= INT_MAX:
        raise InvalidValue(f"{name} is not a number from {minimum}")
    return value


def _md5(text: Any) -> bytes:
    try:
        md5 = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError) as error:
        raise InvalidValue("md5 is not in base64") from error
    if len(md5) != 16:
        raise InvalidValue("md5 does not have 16 bytes")
    return md5
