"""Settings (compatibility and others) and modes: global, of contexts, of subjects, and which of them applies.

A subject without settings has the settings of its context; the default context has the global ones (subject None).
Then the settings of the context `.__GLOBAL` apply, then the defaults. Some settings of a subject are completed by the
global ones, as in Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.registry.errors import InvalidValue
from ottla.registry.identity import canonical_metadata, canonical_rule_set
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, context_prefix, qualify
from ottla.schemas.compatibility import Level

LEVELS: Final = frozenset(Level)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
POLICIES: Final = ("STRICT", "LENIENT", "LOGICAL")
READ_ONLY: Final = frozenset({"READONLY", "READONLY_OVERRIDE"})
IMPORTING: Final = frozenset({"IMPORT", "FORWARD"})
DEFAULT_MODE: Final = "READWRITE"
LEVEL: Final = "compatibilityLevel"

TEXTS: Final = ("alias", "aliasForDeks")
FLAGS: Final = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
METADATA: Final = ("defaultMetadata", "overrideMetadata")
RULE_SETS: Final = ("defaultRuleSet", "overrideRuleSet")
FIELDS: Final = (*TEXTS, *FLAGS, LEVEL, "compatibilityPolicy", "compatibilityGroup", *METADATA, *RULE_SETS)
"""All settings, in the order of Confluent's records and responses."""
_COMPLETED: Final = (*FLAGS, "compatibilityPolicy", "compatibilityGroup")
_GLOBAL: Final = context_prefix(GLOBAL_CONTEXT)


class Settings:
    """The settings and modes of the registry."""

    def __init__(self, level: str = "BACKWARD") -> None:
        self.default_level = level
        self._configs: dict[str | None, Mapping[str, Any]] = {}
        self._modes: dict[str | None, str] = {}
        self._scoped: dict[str | None, Mapping[str, Any]] = {}

    def set_config(self, subject: str | None, fields: Mapping[str, Any] | None) -> None:
        """Apply a record. Raises InvalidValue for a value of the wrong type."""
        self._scoped.clear()
        if fields is None:
            self._configs.pop(subject, None)
        else:
            self._configs[subject] = canonical_config(fields)

    def set_mode(self, subject: str | None, mode: Any) -> None:
        """Apply a record. Raises InvalidValue for an unknown mode."""
        if mode is None:
            self._modes.pop(subject, None)
        elif mode in MODES:
            self._modes[subject] = mode
        else:
            raise InvalidValue(f"the mode {mode} is unknown")

    def stored_config(self, subject: str | None) -> Mapping[str, Any] | None:
        """Return the settings as stored."""
        return self._configs.get(subject)

    def config(self, subject: str | None) -> Mapping[str, Any] | None:
        """Return the settings of a subject itself; None if it has none."""
        own = self._configs.get(subject)
        if own is not None:
            return self._with_level(own)
        return self._defaults() if subject is None or context_of(subject) == GLOBAL_CONTEXT else None

    def config_in_scope(self, subject: str | None) -> Mapping[str, Any]:
        """Return the settings that apply to a subject."""
        found = self._scoped.get(subject)
        if found is None:
            if len(self._scoped) > 10_000:
                self._scoped.clear()
            found = self._scoped[subject] = self._config_in_scope(subject)
        return found

    def _config_in_scope(self, subject: str | None) -> Mapping[str, Any]:
        own = None if subject is None else self.config(subject)
        if own is None:
            return self._inherited_config(subject)
        shared = self.config(None) or {}
        missing = {name: shared[name] for name in _COMPLETED if name in shared and name not in own}
        return in_order({**own, **missing}) if missing else own

    def _inherited_config(self, subject: str | None) -> Mapping[str, Any]:
        for place in _inheritance(subject):
            if place in self._configs:
                return self._with_level(self._configs[place])
        return self._defaults()

    def mode(self, subject: str | None) -> str | None:
        """Return the mode of a subject itself; None if it has none."""
        own = self._modes.get(subject)
        if own is None and (subject is None or context_of(subject) == GLOBAL_CONTEXT):
            return DEFAULT_MODE
        return own

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that applies to a subject."""
        for place in (subject, *_inheritance(subject)):
            if place in self._modes:
                return self._modes[place]
        return DEFAULT_MODE

    def stored_mode(self, subject: str | None) -> str | None:
        """Return the mode as stored."""
        return self._modes.get(subject)

    def subjects_with_mode(self, prefix: str) -> list[str]:
        """Return the subjects below a prefix that have modes of their own."""
        return sorted(name for name in self._modes if name and name != prefix and name.startswith(prefix))

    def aliases(self, prefix: str) -> list[tuple[str, str]]:
        """Return the subjects with a prefix that are aliases, and the full names that they stand for."""
        found = ((name, config.get("alias")) for name, config in self._configs.items() if name)
        return [(name, qualify(name, alias)) for name, alias in found if alias and name.startswith(prefix)]

    def _defaults(self) -> Mapping[str, Any]:
        return {LEVEL: self.default_level}

    def _with_level(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        return config if LEVEL in config else in_order({**config, LEVEL: self.default_level})


def canonical_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known settings that are not null. Raises InvalidValue for a value of the wrong type."""
    config: dict[str, Any] = {}
    for name in FIELDS:
        value = fields.get(name)
        if value is None:
            continue
        if name in METADATA:
            value = canonical_metadata(value)
        elif name in RULE_SETS:
            value = canonical_rule_set(value)
        elif name in FLAGS:
            if not isinstance(value, bool):
                raise InvalidValue(f"{name} must be a boolean")
        elif not isinstance(value, str):
            raise InvalidValue(f"{name} must be a string")
        elif name == LEVEL and value not in LEVELS:
            raise InvalidValue(f"the compatibility level {value} is unknown")
        config[name] = value
    return config


def in_order(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in the order of Confluent's responses."""
    return {name: config[name] for name in FIELDS if name in config}


def _inheritance(subject: str | None) -> tuple[str | None, str]:
    context = context_of(subject)
    return None if context == DEFAULT_CONTEXT else context_prefix(context), _GLOBAL
