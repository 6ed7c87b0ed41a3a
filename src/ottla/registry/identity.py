"""The identity of a schema: an MD5 digest of its text, references, metadata and rule set, as Confluent computes it.

Equal digests mean the same id within a context. The guid of the API is the digest in the form of a UUID.
`canonical_metadata` and `canonical_rule_set` return the forms that are stored: sorted, without unknown properties,
empty parts omitted. They raise InvalidValue for a value of the wrong type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.registry.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.schemas.model import Schema

_RULE_LISTS: Final = ("migrationRules", "domainRules", "encodingRules")
_RULE_TEXTS: Final = ("name", "doc", "kind", "mode", "type")
_RULE_ENDS: Final = ("expr", "onSuccess", "onFailure")
_RULE_KINDS: Final = frozenset({"TRANSFORM", "CONDITION"})
_MIGRATION_MODES: Final = frozenset({"UPGRADE", "DOWNGRADE", "UPDOWN"})
_DOMAIN_MODES: Final = frozenset({"WRITE", "READ", "WRITEREAD"})
_ENVIRONMENTS: Final = frozenset({"ALL", "CLIENT", "GATEWAY", "SERVER", "NONE"})


def digest(schema: Schema) -> bytes:
    """Return the identity of a schema in its canonical form."""
    if not (schema.references or schema.metadata is not None or schema.rule_set is not None):
        return hashlib.md5(schema.text.encode(), usedforsecurity=False).digest()
    parts = [schema.text.encode()]
    for reference in schema.references:
        parts += [reference.name.encode(), reference.subject.encode(), reference.version.to_bytes(4, signed=True)]
    if schema.metadata is not None:
        parts += [b"\x01", *_metadata_parts(schema.metadata)]
    if schema.rule_set is not None:
        parts += [b"\x01", *_rule_set_parts(schema.rule_set)]
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()


def guid(identity: bytes) -> str:
    """Return the guid for a digest."""
    return str(UUID(bytes=identity))


def digest_of_guid(text: str) -> bytes | None:
    """Return the digest for a guid, with or without hyphens; None if the text is not a guid."""
    try:
        return UUID(text).bytes
    except ValueError:
        return None


def canonical_metadata(value: Any) -> dict[str, Any]:
    """Return tags, properties and sensitive names, sorted."""
    if not isinstance(value, Mapping):
        raise InvalidValue("metadata must be an object")
    tags = _object(value.get("tags"), "metadata.tags")
    parts = {
        "tags": {name: _names(tags[name], f"metadata.tags.{name}") for name in sorted(tags)},
        "properties": _texts(value.get("properties"), "metadata.properties"),
        "sensitive": _names(value.get("sensitive"), "metadata.sensitive"),
    }
    return {name: part for name, part in parts.items() if part}


def canonical_rule_set(value: Any) -> dict[str, Any]:
    """Return the rules of each kind in their order."""
    if not isinstance(value, Mapping):
        raise InvalidValue("ruleSet must be an object")
    rules: dict[str, Any] = {}
    for name in _RULE_LISTS:
        listed = value.get(name)
        if listed is not None and not isinstance(listed, list):
            raise InvalidValue(f"ruleSet.{name} must be an array")
        if listed:
            rules[name] = [_canonical_rule(rule) for rule in listed]
    if value.get("enableAt") is not None:
        rules["enableAt"] = _one_of(value["enableAt"], _ENVIRONMENTS, "enableAt")
    return rules


def rule_set_error(rules: Mapping[str, Any]) -> str | None:
    """Return why the registry rejects a rule set; None if it is valid."""
    names: set[str] = set()
    for kind in _RULE_LISTS:
        modes = _MIGRATION_MODES if kind == "migrationRules" else _DOMAIN_MODES
        for rule in rules.get(kind, ()):
            error = _rule_error(rule)
            if error is None and rule["name"] in names:
                error = f"Found rule with duplicate name '{rule['name']}'"
            if error is None and rule.get("mode") not in modes:
                error = f"{kind}: mode must be one of {', '.join(sorted(modes))}"
            if error is not None:
                return error
            names.add(rule["name"])
    return None


def merge_metadata(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return both together; `new` wins for a property or tag that both have."""
    if old is None or new is None:
        return new if old is None else old
    tags, properties, sensitive = "tags", "properties", "sensitive"
    merged = {
        tags: {**old.get(tags, {}), **new.get(tags, {})},
        properties: {**old.get(properties, {}), **new.get(properties, {})},
        sensitive: [*old.get(sensitive, ()), *new.get(sensitive, ())],
    }
    return canonical_metadata(merged)


def merge_rule_sets(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the rules of both; a rule of `new` replaces a rule of `old` with the same name."""
    if old is None or new is None:
        return new if old is None else old
    merged: dict[str, Any] = {}
    for kind in _RULE_LISTS:
        names = {rule.get("name") for rule in new.get(kind, ())}
        rules = [rule for rule in old.get(kind, ()) if rule.get("name") not in names] + list(new.get(kind, ()))
        if rules:
            merged[kind] = rules
    enable_at = new.get("enableAt") or old.get("enableAt")
    return {**merged, "enableAt": enable_at} if enable_at else merged


def _canonical_rule(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValue("a rule must be an object")
    rule: dict[str, Any] = {}
    for name in _RULE_TEXTS:
        _copy_text(value, rule, name)
    for name, allowed in (("kind", _RULE_KINDS), ("mode", _MIGRATION_MODES | _DOMAIN_MODES)):
        if name in rule:
            _one_of(rule[name], allowed, name)
    if tags := _names(value.get("tags"), "tags"):
        rule["tags"] = tags
    if params := _texts(value.get("params"), "params"):
        rule["params"] = params
    for name in _RULE_ENDS:
        _copy_text(value, rule, name)
    disabled = value.get("disabled")
    if disabled is not None and not isinstance(disabled, bool):
        raise InvalidValue("disabled must be a boolean")
    rule["disabled"] = bool(disabled)
    return rule


def _rule_error(rule: Mapping[str, Any]) -> str | None:
    name = rule.get("name", "")
    if not name:
        return "Missing rule name"
    if len(name) > 256:
        return "Rule name too long"
    if not (name[0].isalpha() or name[0] == "_"):
        return f"Illegal initial character in rule name: {name}"
    if not all(char.isalnum() or char in "_-" for char in name):
        return f"Illegal character in rule name: {name}"
    if not rule.get("type"):
        return "Missing rule type"
    has_actions = any("," in rule.get(end, "") for end in _RULE_ENDS[1:])
    if has_actions and rule.get("mode") not in (None, "WRITEREAD", "UPDOWN"):
        return "Multiple actions only valid with WRITEREAD and UPDOWN"
    return None


def _metadata_parts(metadata: Mapping[str, Any]) -> Iterable[bytes]:
    for name, values in metadata.get("tags", {}).items():
        yield name.encode()
        yield from (value.encode() for value in values)
    for name, value in metadata.get("properties", {}).items():
        yield name.encode()
        yield value.encode()
    yield from (name.encode() for name in metadata.get("sensitive", ()))


def _rule_set_parts(rules: Mapping[str, Any]) -> Iterable[bytes]:
    for kind in _RULE_LISTS:
        for rule in rules.get(kind, ()):
            yield from _rule_parts(rule)
    yield rules.get("enableAt", "").encode()


def _rule_parts(rule: Mapping[str, Any]) -> Iterable[bytes]:
    yield from (rule.get(name, "").encode() for name in _RULE_TEXTS)
    yield from (tag.encode() for tag in rule.get("tags", ()))
    for name, value in rule.get("params", {}).items():
        yield name.encode()
        yield value.encode()
    yield from (rule.get(name, "").encode() for name in _RULE_ENDS)
    if rule.get("disabled"):
        yield b"\x01"


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{place} must be an object")
    return value


def _texts(value: Any, place: str) -> dict[str, str]:
    texts = _object(value, place)
    return {name: _text(texts[name], f"{place}.{name}") for name in sorted(texts)}


def _names(value: Any, place: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InvalidValue(f"{place} must be an array")
    return sorted({_text(name, place) for name in value})


def _text(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise InvalidValue(f"{place} must be a string")


def _copy_text(source: Mapping[str, Any], target: dict[str, Any], name: str) -> None:
    if source.get(name) is not None:
        text = _text(source[name], name)
        if text:
            target[name] = text


def _one_of(value: Any, allowed: frozenset[str], name: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValue(f"{name} must be one of {', '.join(sorted(allowed))}")
    return value
