"""Validation of connector configurations: all faults at once, as Kafka Connect's AbstractHerder reports them.

`Validator.check` is pure but for loading plugins; it runs in a thread. The plugin's own check, which may connect to
another system, is the runtime's: `Herder.validate` joins both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.api import ExactlyOnce, TransactionBoundaries
from ottla.connect.config.definition import ConfigDef, ConfigValue, Setting, SettingError
from ottla.connect.errors import BadRequestError, NotFoundError
from ottla.connect.herder import common_settings as common
from ottla.connect.herder.described import Row, Validation, definition, definitions, groups, orders
from ottla.connect.herder.overrides import ALL, OverridePolicy, override_rows
from ottla.connect.herder.plugin_settings import ConverterSettings, chain_settings, converter_definition
from ottla.connect.herder.plugin_source import PluginInfo, PluginKind, Plugins
from ottla.connect.herder.versions import absent, matches
from ottla.connect.plugins import plugin_name

Given = Mapping[str, str | None]

_NULL: Final = "Null value can not be supplied as the configuration value."
_OTHER_KINDS: Final = (
    PluginKind.CONVERTER,
    PluginKind.HEADER_CONVERTER,
    PluginKind.TRANSFORMATION,
    PluginKind.PREDICATE,
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
    "reconfigure it to use a different transaction boundary definition."
)


@dataclass(frozen=True)
class WorkerRules:
    """The settings of the worker that validation depends on."""

    converters: Mapping[str, str]
    """The class names of the default converters, by the names of common_settings.CONVERTERS."""
    exactly_once: bool = True
    group_id: str = ""
    override_policy: OverridePolicy = ALL


class Validator:
    """Checks configurations for one worker."""

    def __init__(self, plugins: Plugins, rules: WorkerRules) -> None:
        self.plugins = plugins
        self._rules = rules

    def plugin(self, given: Given) -> PluginInfo:
        """Return the connector of a configuration. Raises BadRequestError, and ConnectError if it cannot be loaded."""
        name = given.get(common.CLASS)
        if name is None:
            raise BadRequestError(f"Connector config {{{', '.join(sorted(given))}}} contains no connector type")
        try:
            return self.plugins.connector(plugin_name(given))
        except NotFoundError as error:
            raise BadRequestError(str(error)) from error

    def check(self, given: Given) -> Validation:
        """Return the result of the validation, without the plugin's own check. Raises as `plugin`."""
        plugin = self.plugin(given)
        wanted = given.get(common.VERSION)
        if not matches(plugin.version, wanted):
            return self._without_plugin(plugin, given, absent(plugin.name, str(wanted), plugin.version))
        settings = self._settings(plugin, given)
        values = ConfigDef(settings).validate(given)
        _hide_versions(values)
        self._name_classes(values)
        self._add_problems(plugin, given, values)
        for name in (each for each, value in given.items() if value is None):
            values.setdefault(name, ConfigValue(name)).errors.append(_NULL)
        rows = _rows([*settings, *plugin.config_def], {**values, **plugin.config_def.validate(given)})
        sections = groups([*settings, *plugin.config_def])
        rows += override_rows(plugin.kind, given, self._rules.override_policy)
        for name in ("header.converter", "key.converter", "value.converter"):
            more, names = self._converter_rows(name, given, values[name])
            rows += more
            sections += [each for each in names if each not in sections]
        return Validation(str(given[common.CLASS]), sections, rows)

    def plugin_definitions(self, name: str, version: str | None = None) -> list[dict[str, Any]]:
        """Return the settings of a plugin of any kind. Raises NotFoundError, BadRequestError."""
        plugin = self._any_plugin(name)
        if not matches(plugin.version, version):
            raise BadRequestError(absent(plugin.name, str(version), plugin.version))
        own = plugin.config_def
        if plugin.kind in (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER):
            return definitions(converter_definition(plugin))
        if plugin.kind not in (PluginKind.SOURCE, PluginKind.SINK):
            return definitions(own)
        base = common.connector_settings({common.VERSION: plugin.version}, {}, {})
        more = common.SOURCE_SETTINGS if plugin.kind is PluginKind.SOURCE else common.SINK_SETTINGS
        rest = [each for each in [*base, *more] if each.name not in own]
        return definitions(own) + definitions(rest)

    def _any_plugin(self, name: str) -> PluginInfo:
        try:
            return self.plugins.connector(name)
        except NotFoundError:
            pass
        for kind in _OTHER_KINDS:
            try:
                return self.plugins.find(kind, name)
            except NotFoundError:
                continue
        raise NotFoundError(f"Unknown plugin {name}.")

    def _settings(self, plugin: PluginInfo, given: Given) -> list[Setting]:
        """Return the settings of all connectors, also of transformations and predicates."""
        converters = ConverterSettings(self.plugins, self._rules.converters)
        defaults: dict[str, Any] = {common.VERSION: plugin.version}
        recommended: dict[str, Callable[[Mapping[str, Any]], Sequence[Any]]] = {
            common.VERSION: lambda _: [plugin.version]
        }
        validators = {}
        for name in common.CONVERTERS:
            version = name + common.PLUGIN_VERSION
            defaults[name] = converters.default(name)
            defaults[version] = converters.version(name, given)
            recommended[name] = converters.recommend(name)
            recommended[version] = converters.recommend_version(name, given)
            validators[name] = converters.validator(name)
            validators[version] = converters.version_validator(name, given)
        more = common.SOURCE_SETTINGS if plugin.kind is PluginKind.SOURCE else common.SINK_SETTINGS
        base = common.connector_settings(defaults, recommended, validators)
        return [*base, *more, *chain_settings(self.plugins, given)]

    def _name_classes(self, values: Mapping[str, ConfigValue]) -> None:
        """Show the class names of converters that are named by an alias."""
        for name in common.CONVERTERS:
            row = values[name]
            if row.value is not None and not row.errors:
                row.value = self.plugins.find(_converter_kind(name), row.value).name

    def _add_problems(self, plugin: PluginInfo, given: Given, values: dict[str, ConfigValue]) -> None:
        """Add what several settings, or a setting and the worker, do not allow together."""
        if plugin.kind is PluginKind.SINK:
            problems = common.sink_problems(given)
            group = given.get("consumer.override.group.id") or f"connect-{given.get(common.NAME)}"
            if self._rules.group_id and group == self._rules.group_id:
                text = f"Consumer group {group} conflicts with Connect worker group {self._rules.group_id}"
                problems.setdefault(common.NAME, []).append(text)
        else:
            problems = self._source_problems(plugin, given, values)
        for name, messages in problems.items():
            values.setdefault(name, ConfigValue(name)).errors += messages
        for alias in (each.strip() for each in (given.get("transforms") or "").split(",")):
            prefix = f"transforms.{alias}."
            if prefix + "negate" in given and prefix + "predicate" not in given and prefix + "type" in values:
                values[prefix + "type"].errors.append(
                    f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a "
                    "predicate to be negated."
                )

    def _source_problems(
        self, plugin: PluginInfo, given: Given, values: Mapping[str, ConfigValue]
    ) -> dict[str, list[str]]:
        problems: dict[str, list[str]] = {}
        support, boundary = values[common.EXACTLY_ONCE_SUPPORT], values[common.TRANSACTION_BOUNDARY]
        if (support.value or "").lower() == "required" and not support.errors:
            text = None
            if not self._rules.exactly_once:
                text = "This worker does not have exactly-once source support enabled."
            elif plugin.type.exactly_once(_texts(given)) is not ExactlyOnce.SUPPORTED:
                text = "The connector does not support exactly-once semantics with the provided configuration."
            if text:
                problems[common.EXACTLY_ONCE_SUPPORT] = [text]
        if (boundary.value or "").lower() == "connector":
            found = plugin.type.can_define_transaction_boundaries(_texts(given))
            if found is not TransactionBoundaries.SUPPORTED:
                problems[common.TRANSACTION_BOUNDARY] = [_NO_BOUNDARIES]
        return problems

    def _converter_rows(self, name: str, given: Given, chosen: ConfigValue) -> tuple[list[Row], list[str]]:
        """Return the settings of a converter that the configuration names, and their groups."""
        text = given.get(name)
        if text is None or chosen.errors:
            return [], []
        settings = converter_definition(self.plugins.find(_converter_kind(name), text))
        prefix = f"{name}."
        own = {each.removeprefix(prefix): value for each, value in given.items() if each.startswith(prefix)}
        own.setdefault("converter.type", name.partition(".")[0])
        rows = _rows(list(settings), settings.validate(own), prefix)
        return rows, groups(settings)

    def _without_plugin(self, plugin: PluginInfo, given: Given, problem: str) -> Validation:
        """Return the result for a version of the plugin that does not exist: the common settings alone."""
        settings = common.connector_settings(
            {common.VERSION: plugin.version}, {common.VERSION: lambda _: [plugin.version]}, {}
        )
        values = ConfigDef(settings).validate(given)
        _hide_versions(values)
        for name in (common.CLASS, common.VERSION):
            values[name].errors.append(problem)
        return Validation(str(given[common.CLASS]), groups(settings), _rows(settings, values))


def _converter_kind(name: str) -> PluginKind:
    return PluginKind.HEADER_CONVERTER if name == "header.converter" else PluginKind.CONVERTER


def _hide_versions(values: Mapping[str, ConfigValue]) -> None:
    """Hide the versions of converters that are not chosen."""
    for name in common.CONVERTERS:
        values[name + common.PLUGIN_VERSION].visible = values[name].value is not None


def _texts(given: Given) -> dict[str, str]:
    return {name: value for name, value in given.items() if value is not None}


def _rows(settings: Iterable[Setting], values: Mapping[str, ConfigValue], prefix: str = "") -> list[Row]:
    """Return rows: unknown settings with a fault first, then all others; a later definition replaces another one."""
    given = list(settings)
    by_name = {each.name: each for each in given}
    places = orders(given)
    rows = [Row(None, value) for name, value in values.items() if name not in by_name]
    for name, setting in by_name.items():
        value = values[name]
        value.name = prefix + name
        rows.append(Row(definition(setting, places[name], prefix), value))
    return rows


def invalid_text(messages: Sequence[str]) -> str:
    """Return Kafka's message for a configuration with faults."""
    return (
        f"Connector configuration is invalid and contains the following {len(messages)} error(s):\n"
        + "\n".join(messages)
        + "\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


def add_problems(result: Validation, problems: Mapping[str, Sequence[str]]) -> None:
    """Add the messages of the plugin's own check to the rows of their settings."""
    rows = {row.value.name: row for row in result.rows}
    for name, messages in problems.items():
        if name not in rows:
            rows[name] = Row(None, ConfigValue(name))
            result.rows.insert(0, rows[name])
        rows[name].value.errors += [each for each in messages if each not in rows[name].value.errors]


__all__ = ["SettingError", "Validator", "WorkerRules", "add_problems", "invalid_text"]
