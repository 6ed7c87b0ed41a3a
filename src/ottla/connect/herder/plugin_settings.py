"""The settings that depend on the plugins of a configuration: converters, transformations and predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingError,
    SettingType,
    UnknownClassError,
    Validator,
    Width,
    invalid,
    one_of,
)
from ottla.connect.errors import ConnectError, NotFoundError
from ottla.connect.herder import common_settings as common
from ottla.connect.herder.described import embedded
from ottla.connect.herder.plugin_source import PluginInfo, PluginKind, Plugins
from ottla.connect.herder.versions import absent, matches

Given = Mapping[str, str | None]
Recommend = Callable[[Mapping[str, Any]], Sequence[Any]]

_PREDICATE: Final = Setting(
    "predicate", SettingType.STRING, "The predicate that chooses the records of this transformation.", None
)
_NEGATE: Final = Setting("negate", SettingType.BOOLEAN, "Whether to choose the other records instead.", False)
_CONVERTER_TYPE: Final = Setting(
    "converter.type",
    SettingType.STRING,
    "The part of a record that the converter is for.",
    importance=Importance.LOW,
    validator=one_of("key", "value", "header"),
)


def converter_definition(plugin: PluginInfo) -> ConfigDef:
    """Return the settings of a converter, with `converter.type` if it has any."""
    own = [each for each in plugin.config_def if each.name != _CONVERTER_TYPE.name]
    return ConfigDef([_CONVERTER_TYPE, *own]) if own else plugin.config_def


def class_validator(plugins: Plugins, kind: PluginKind, label: str) -> Validator:
    """Return the validator of a setting that names a plugin of a kind."""

    def check(name: str, value: Any) -> None:
        if value is None:
            return
        try:
            plugins.find(kind, value)
        except NotFoundError as error:
            if _is_connector(plugins, value):
                text = f"Class class {value} does not implement the {label} interface"
                raise SettingError(text) from error
            raise UnknownClassError(str(invalid(name, value, f"Class {value} could not be found."))) from error
        except ConnectError as error:
            raise invalid(name, value, str(error)) from error

    return check


def _is_connector(plugins: Plugins, name: str) -> bool:
    try:
        plugins.connector(name)
    except ConnectError:
        return False
    return True


class ConverterSettings:
    """The parts of the settings of converters that depend on the worker and its plugins."""

    def __init__(self, plugins: Plugins, defaults: Mapping[str, str]) -> None:
        self._plugins = plugins
        self._defaults = defaults

    def default(self, name: str) -> str | None:
        """Return the worker's converter."""
        return self._defaults.get(name)

    def version(self, name: str, given: Given) -> str | None:
        """Return the version of the chosen converter; None if it does not exist."""
        found = self._find(name, self._chosen(name, given))
        return None if found is None else found.version

    def recommend(self, name: str) -> Recommend:
        """Return what recommends the converters that exist."""
        return lambda _: list(self._plugins.names(_kind(name)))

    def recommend_version(self, name: str, given: Given) -> Recommend:
        """Return what recommends the version of the chosen converter."""
        return lambda _: [each for each in [self.version(name, given)] if each is not None]

    def validator(self, name: str) -> Validator:
        """Return the validator of the class."""
        label = "HeaderConverter" if _kind(name) is PluginKind.HEADER_CONVERTER else "Converter"
        return class_validator(self._plugins, _kind(name), label)

    def version_validator(self, name: str, given: Given) -> Validator:
        """Return the validator of the version."""

        def check(setting: str, value: Any) -> None:
            del setting
            found = self._find(name, self._chosen(name, given))
            if found is not None and value is not None and not matches(found.version, value):
                raise SettingError(absent(found.name, value, found.version))

        return check

    def _chosen(self, name: str, given: Given) -> str | None:
        return given[name] if name in given else self.default(name)

    def _find(self, name: str, chosen: str | None) -> PluginInfo | None:
        if chosen is None:
            return None
        try:
            return self._plugins.find(_kind(name), chosen)
        except ConnectError:
            return None  # the validator of the class reports it


def _kind(name: str) -> PluginKind:
    return PluginKind.HEADER_CONVERTER if name == "header.converter" else PluginKind.CONVERTER


def chain_settings(plugins: Plugins, given: Given) -> Iterator[Setting]:
    """Return the settings of the transformations and predicates that a configuration names."""
    yield from _chain(plugins, given, PluginKind.TRANSFORMATION, "transforms", common.TRANSFORMS, "Transformation")
    yield from _chain(plugins, given, PluginKind.PREDICATE, "predicates", common.PREDICATES, "Predicate")


def _chain(plugins: Plugins, given: Given, kind: PluginKind, name: str, group: str, label: str) -> Iterator[Setting]:
    aliases = dict.fromkeys(each.strip() for each in (given.get(name) or "").split(",") if each.strip())
    for alias in aliases:
        prefix, section = f"{name}.{alias}.", f"{group}: {alias}"
        found = _found(plugins, kind, given.get(f"{prefix}type"))
        yield Setting(
            f"{prefix}type", SettingType.CLASS, f"The class of the {label.lower()} {alias}.",
            importance=Importance.HIGH, validator=class_validator(plugins, kind, label), group=section,
            width=Width.LONG, display_name=f"{label} type for {alias}",
            recommended=_names(plugins, kind), order=0,
        )  # fmt: skip
        version = None if found is None else found.version
        yield Setting(
            f"{prefix}plugin.version", SettingType.STRING, f"The version of the {label.lower()} {alias}.", version,
            importance=Importance.HIGH, group=section, width=Width.LONG,
            display_name=f"{label} version for {alias}",
            recommended=_one_or_none(version), order=1,
        )  # fmt: skip
        if found is None:
            continue
        own: list[Setting] = list(found.config_def)
        if kind is PluginKind.TRANSFORMATION:
            own = [each for each in own if each.name not in ("predicate", "negate")] + [_PREDICATE, _NEGATE]
        yield from embedded(own, prefix, section, 2)


def _found(plugins: Plugins, kind: PluginKind, name: str | None) -> PluginInfo | None:
    if name is None:
        return None
    try:
        return plugins.find(kind, name)
    except ConnectError:
        return None  # the validator of the class reports it


def _names(plugins: Plugins, kind: PluginKind) -> Recommend:
    return lambda _: list(plugins.names(kind))


def _one_or_none(version: str | None) -> Recommend:
    return lambda _: [] if version is None else [version]
