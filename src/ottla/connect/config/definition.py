"""Definitions of settings, with the rules and messages of Kafka's ConfigDef (org.apache.kafka.common.config)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

HIDDEN: Final = "[hidden]"
_COMMA: Final = re.compile(r"\s*,\s*")


class SettingType(StrEnum):
    """The type of a setting; the texts are from the REST API."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - a type


class Importance(StrEnum):
    """How much a setting matters."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """How wide a form should show a setting."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Password(str):
    """A secret setting: `str(value)` and `repr(value)` hide it; `value.secret` is the text."""

    __slots__ = ()

    @property
    def secret(self) -> str:
        """The text."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)


class SettingError(ValueError):
    """A value that is not valid; the text is Kafka's."""


class UnknownClassError(SettingError):
    """The name of a class that does not exist: validation shows no value."""


Validator: TypeAlias = Callable[[str, Any], None]
"""Raises SettingError for the name and a value that is not valid."""
_NO_DEFAULT: Final = object()


def invalid(name: str, value: object, reason: str = "") -> SettingError:
    """Return the error for a value, in Kafka's words."""
    return SettingError(f"Invalid value {_java(value)} for configuration {name}" + (f": {reason}" if reason else ""))


def _java(value: object) -> str:
    """Return a value as Java's messages show it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def between(low: float | None = None, high: float | None = None) -> Validator:
    """Return the validator of a number; None: no limit."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise invalid(name, None, "Value must be non-null")
        if low is not None and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return check


def one_of(*values: str, ignore_case: bool = False) -> Validator:
    """Return the validator of a string."""
    known = {each.lower() for each in values} if ignore_case else set(values)

    def check(name: str, value: Any) -> None:
        if value is not None and (value.lower() if ignore_case else value) not in known:
            kind = "String must be one of (case insensitive)" if ignore_case else "String must be one of"
            raise invalid(name, value, f"{kind}: {', '.join(values)}")

    return check


def non_empty(name: str, value: Any) -> None:
    """Accept no empty string."""
    if value is not None and not value:
        raise invalid(name, value, "String must be non-empty")


@dataclass(frozen=True)
class Setting:
    """The definition of a setting. `default` is a parsed value; without one, the setting is required."""

    name: str
    type: SettingType
    doc: str
    default: Any = _NO_DEFAULT
    importance: Importance = Importance.MEDIUM
    validator: Validator | None = None
    group: str | None = None
    width: Width = Width.NONE
    display_name: str | None = None
    dependents: tuple[str, ...] = ()
    recommended: Callable[[Mapping[str, Any]], Sequence[Any]] | None = None
    """The values to choose from, given the other parsed settings."""
    order: int | None = None
    """The place in the group; None: after the previous setting of the group."""

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is _NO_DEFAULT

    def parse(self, given: str | None) -> Any:
        """Convert and check a text. Raises SettingError."""
        value = parsed(self.name, given, self.type)
        if self.validator is not None:
            self.validator(self.name, value)
        return value


@dataclass
class ConfigValue:
    """A setting of a given configuration: what validation says of it."""

    name: str
    value: str | None = None
    recommended_values: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    visible: bool = True


class ConfigDef:
    """Settings by name, in order."""

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        self._settings = {each.name: each for each in settings}

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def plus(self, others: Iterable[Setting]) -> ConfigDef:
        """Return these settings and others; a later one replaces another of its name."""
        return ConfigDef([*self, *others])

    def parse(self, given: Mapping[str, str | None]) -> dict[str, Any]:
        """Return all settings as values. Raises SettingError with the first fault; unknown settings are ignored."""
        found: dict[str, Any] = {}
        for setting in self:
            if setting.name in given:
                found[setting.name] = setting.parse(given[setting.name])
            elif setting.required:
                raise SettingError(missing(setting.name))
            else:
                found[setting.name] = setting.default
        return found

    def validate(self, given: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Check all settings: the outcome by name, in order. Never raises for a value.

        As in Kafka, a value that is refused is shown, and the validator also sees None for a text that has no value.
        """
        values: dict[str, Any] = {}
        outcome: dict[str, ConfigValue] = {}
        for setting in self:
            row = outcome[setting.name] = ConfigValue(setting.name)
            value = values[setting.name] = _checked(setting, given, row.errors)
            row.value = text_of(value, setting.type)
        for setting in self:
            if setting.recommended is not None:
                chosen = setting.recommended(values)
                outcome[setting.name].recommended_values = [str(text_of(each, setting.type)) for each in chosen]
        return outcome


def _checked(setting: Setting, given: Mapping[str, str | None], errors: list[str]) -> Any:
    """Return the value of a setting, and add what is wrong to the errors."""
    value: Any = None
    if setting.name in given:
        try:
            value = parsed(setting.name, given[setting.name], setting.type)
        except SettingError as error:
            errors.append(str(error))
    elif setting.required:
        errors.append(missing(setting.name))
        return None
    else:
        value = setting.default
    if setting.validator is not None:
        try:
            setting.validator(setting.name, value)
        except UnknownClassError as error:
            errors.append(str(error))
            return None
        except SettingError as error:
            errors.append(str(error))
    return value


def missing(name: str) -> str:
    """Return Kafka's message for a required setting that is absent."""
    return f'Missing required configuration "{name}" which has no default value.'


_INTEGERS: Final = {SettingType.INT: 31, SettingType.SHORT: 15, SettingType.LONG: 63}


def parsed(name: str, given: str | None, kind: SettingType) -> Any:
    """Convert a text to the Python value of a type. Raises SettingError in Kafka's words."""
    if given is None:
        return None
    text = given.strip()
    if kind is SettingType.PASSWORD:
        return Password(text)
    if kind is SettingType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise invalid(name, given, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind is SettingType.LIST:
        return _COMMA.split(text) if text else []
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) or not -(1 << bits) <= int(text) < 1 << bits:
            raise invalid(name, given, f"Not a number of type {kind}")
        return int(text)
    if kind is SettingType.DOUBLE:
        try:
            return float(text)
        except ValueError as error:
            raise invalid(name, given, f"Not a number of type {kind}") from error
    return text


def text_of(value: Any, kind: SettingType) -> str | None:
    """Return a parsed value as Kafka shows it."""
    if value is None:
        return None
    if kind is SettingType.PASSWORD:
        return HIDDEN
    if kind is SettingType.BOOLEAN:
        return "true" if value else "false"
    if kind is SettingType.LIST:
        return ",".join(value)
    return str(value)
