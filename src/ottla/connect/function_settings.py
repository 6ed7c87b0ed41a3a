"""Typed settings of connectors that are functions: a dataclass, or a mapping from names to types or defaults."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ottla.connect.config.definition import ConfigDef, Importance, Password, Setting, SettingType

_TYPES: Final[dict[Any, SettingType]] = {
    bool: SettingType.BOOLEAN,
    int: SettingType.LONG,
    float: SettingType.DOUBLE,
    str: SettingType.STRING,
    list: SettingType.LIST,
    Password: SettingType.PASSWORD,
}
_RESERVED: Final = frozenset({"name", "connector.class", "tasks.max", "topics", "topics.regex", "transforms"})
_REQUIRED: Final = object()


class SettingsModel:
    """The settings of a function: their definitions, and the object that the function gets."""

    def __init__(self, declared: object) -> None:
        """Read a declaration. Raises TypeError for a type that settings cannot have, and for a reserved name."""
        self._class = declared if isinstance(declared, type) and is_dataclass(declared) else None
        if self._class is not None:
            rows = _of_dataclass(self._class)
        elif isinstance(declared, Mapping):
            rows = {name: _of_value(name, each) for name, each in declared.items()}
        elif declared is None:
            rows = {}
        else:
            raise TypeError(f"config= takes a dataclass or a mapping, not {declared!r}")
        for name in rows:
            if name in _RESERVED:
                raise TypeError(f"{name} is a setting of all connectors: choose another name")
        self.definition = ConfigDef([_setting(name, *row) for name, row in rows.items()])

    def read(self, config: Mapping[str, str | None]) -> Any:
        """Return the object with the settings of a connector. Raises SettingError."""
        values = self.definition.parse(config)
        return self._class(**values) if self._class is not None else SimpleNamespace(**values)


def _setting(name: str, kind: SettingType, default: Any) -> Setting:
    doc = f"The setting {name} of this connector."
    if default is _REQUIRED:
        return Setting(name, kind, doc, importance=Importance.HIGH)
    return Setting(name, kind, doc, default)


def _of_dataclass(kind: type[Any]) -> dict[str, tuple[SettingType, Any]]:
    hints = get_type_hints(kind)
    rows = {}
    for each in fields(kind):
        default = each.default
        if default is MISSING:
            default = _REQUIRED if each.default_factory is MISSING else each.default_factory()
        rows[each.name] = _type(each.name, hints[each.name]), default
    return rows


def _of_value(name: str, given: Any) -> tuple[SettingType, Any]:
    """A type is required; another value is a default, whose type counts."""
    if given in _TYPES or get_origin(given) is not None:
        return _type(name, given), _REQUIRED
    return _type(name, type(given)), given


def _type(name: str, hint: Any) -> SettingType:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [each for each in arguments if each is not type(None)]
        if len(inner) == 1:
            return _type(name, inner[0])
    found = _TYPES.get(origin if origin is list else hint)
    if found is None:
        known = ", ".join(each.__name__ for each in _TYPES)
        raise TypeError(f"The setting {name} has the type {hint}; settings are {known}")
    return found
