"""The settings that all connectors have, as Kafka Connect 4.3 defines them: names, types, groups, order, widths.

Sources: ConnectorConfig, SourceConnectorConfig and SinkConnectorConfig of org.apache.kafka.connect.runtime. The
documentation texts are our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.connect.config.definition import (
    Importance,
    Setting,
    SettingError,
    SettingType,
    Validator,
    Width,
    between,
    invalid,
    non_empty,
    one_of,
)

COMMON, TRANSFORMS, PREDICATES = "Common", "Transforms", "Predicates"
ERRORS, TOPIC_CREATION = "Error Handling", "Topic Creation"
EXACTLY_ONCE, OFFSETS = "Exactly Once Support", "offsets.topic"

NAME: Final = "name"
CLASS: Final = "connector.class"
VERSION: Final = "connector.plugin.version"
TASKS_MAX: Final = "tasks.max"
TASKS_MAX_ENFORCE: Final = "tasks.max.enforce"
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
TOPICS, TOPICS_REGEX = "topics", "topics.regex"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
EXACTLY_ONCE_SUPPORT: Final = "exactly.once.support"
TRANSACTION_BOUNDARY: Final = "transaction.boundary"
PLUGIN_VERSION: Final = ".plugin.version"

_S, _L, _I, _B = SettingType.STRING, SettingType.LONG, SettingType.INT, SettingType.BOOLEAN
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain_name(name: str, value: Any) -> None:
    """Accept a name that is not empty and has no control characters."""
    if value is None:
        return
    if not value:
        raise invalid(name, value, "String may not be empty")
    found = sorted({ord(each) for each in _CONTROL.findall(value)})
    if found:
        shown = ", ".join(map(str, found))
        reason = f"String may not contain control sequences but had the following ASCII chars: {shown}"
        raise invalid(name, value, reason)


def unique_aliases(name: str, value: Any) -> None:
    """Accept a list without duplicates."""
    if value is None:
        raise invalid(name, value, "entry must be non null")
    if len(set(value)) < len(value):
        raise invalid(name, value, "Duplicate alias provided.")


def unique_values(name: str, value: Any) -> None:
    """Accept a list of topics without duplicates."""
    if value is not None and len(set(value)) < len(value):
        raise SettingError(f"Configuration '{name}' values must not be duplicated.")


def regular_expression(name: str, value: Any) -> None:
    """Accept a regular expression."""
    try:
        re.compile(value or "")
    except re.error as error:
        raise invalid(name, value, f"Invalid regex: {error}") from error


def _at_least_zero_or_none(name: str, value: Any) -> None:
    if value is not None:
        between(0)(name, value)


def connector_settings(
    defaults: Mapping[str, Any],
    recommended: Mapping[str, Callable[[Mapping[str, Any]], Sequence[Any]]],
    validators: Mapping[str, Validator],
) -> list[Setting]:
    """Return the settings of sources and sinks. Defaults of converters and versions depend on the plugins."""

    def converter(name: str, label: str, order: int, what: str) -> list[Setting]:
        version = name + PLUGIN_VERSION
        return [
            Setting(name, SettingType.CLASS, f"The converter of {what}. Default: the worker's.", defaults.get(name),
                    _LOW, validators.get(name), COMMON, Width.SHORT, f"{label} converter class",
                    recommended=recommended.get(name), order=order),
            Setting(version, _S, f"The version of the converter of {what}.", defaults.get(version), _LOW,
                    validators.get(version), COMMON, Width.SHORT, f"{label} converter version",
                    recommended=recommended.get(version), order=order + 1),
        ]  # fmt: skip

    return [
        Setting(NAME, _S, "The name of the connector, unique in the group of workers.", importance=_HIGH,
                validator=plain_name, group=COMMON, width=Width.MEDIUM, display_name="Connector name"),
        Setting(CLASS, _S, "The plugin: the name of its class, its alias or its short name.", importance=_HIGH,
                group=COMMON, width=Width.LONG, display_name="Connector class"),
        Setting(VERSION, _S, "The version of the plugin, or a range of versions.", defaults.get(VERSION), _MEDIUM,
                validators.get(VERSION), COMMON, Width.MEDIUM, "Connector version",
                recommended=recommended.get(VERSION)),
        Setting(TASKS_MAX, _I, "How many tasks the connector may have.", 1, _HIGH, between(1), COMMON, Width.SHORT,
                "Tasks max"),
        Setting(TASKS_MAX_ENFORCE, _B, "Whether a connector with more tasks than tasks.max fails.", True, _LOW,
                group=COMMON, width=Width.SHORT, display_name="Enforce tasks max"),
        *converter("key.converter", "Key", 6, "keys"),
        *converter("value.converter", "Value", 8, "values"),
        *converter("header.converter", "Header", 10, "headers"),
        Setting("transforms", SettingType.LIST, "Names of the transformations, in the order in which they are applied.",
                [], _LOW, unique_aliases, TRANSFORMS, Width.LONG, "Transforms", order=12),
        Setting("predicates", SettingType.LIST, "Names of the predicates that transformations use.", [], _LOW,
                unique_aliases, PREDICATES, Width.LONG, "Predicates", order=13),
        Setting("config.action.reload", _S, "Whether the connector is restarted when an external value of its "
                "configuration changes: none or restart.", "restart", _LOW, one_of("none", "restart"), COMMON,
                Width.MEDIUM, "Reload Action", order=14),
        Setting("errors.retry.timeout", _L, "How long a failed operation is repeated, in ms; 0: not at all, -1: "
                "without end.", 0, _MEDIUM, group=ERRORS, width=Width.MEDIUM,
                display_name="Retry Timeout for Errors"),
        Setting("errors.retry.delay.max.ms", _L, "The longest pause between two tries, in ms.", 60000, _MEDIUM,
                group=ERRORS, width=Width.MEDIUM, display_name="Maximum Delay Between Retries for Errors"),
        Setting("errors.tolerance", _S, "What an invalid record does: none stops the task, all skips the record.",
                "none", _MEDIUM, one_of("none", "all"), ERRORS, Width.SHORT, "Error Tolerance"),
        Setting("errors.log.enable", _B, "Whether each failed operation is logged.", False, _MEDIUM, group=ERRORS,
                width=Width.SHORT, display_name="Log Errors"),
        Setting("errors.log.include.messages", _B, "Whether the log names the record of a failure.", False, _MEDIUM,
                group=ERRORS, width=Width.SHORT, display_name="Log Error Details"),
    ]  # fmt: skip


SOURCE_SETTINGS: Final = (
    Setting("topic.creation.groups", SettingType.LIST, "Names of groups of new topics, each with its own settings.", [],
            _LOW, unique_aliases, TOPIC_CREATION, Width.LONG, "Topic Creation Groups", order=1),
    Setting(EXACTLY_ONCE_SUPPORT, _S, "Whether the connector must support exactly once (required), or need not "
            "(requested).", "requested", _MEDIUM, one_of("REQUIRED", "REQUESTED", ignore_case=True), EXACTLY_ONCE,
            Width.SHORT, "Exactly once support", order=2),
    Setting(TRANSACTION_BOUNDARY, _S, "When a transaction is committed: after each poll, after an interval, or when "
            "the connector says so.", "poll", _MEDIUM, one_of("INTERVAL", "POLL", "CONNECTOR", ignore_case=True),
            EXACTLY_ONCE, Width.SHORT, "Transaction Boundary", order=3),
    Setting("transaction.boundary.interval.ms", _L, "The time between commits for transaction.boundary=interval; "
            "default: the worker's offset.flush.interval.ms.", None, _LOW, _at_least_zero_or_none, EXACTLY_ONCE,
            Width.SHORT, "Transaction boundary interval", order=4),
    Setting("offsets.storage.topic", _S, "A topic of its own for the offsets of this connector.", None, _LOW,
            non_empty, OFFSETS, Width.LONG, "Offsets topic", order=1),
)  # fmt: skip
SINK_SETTINGS: Final = (
    Setting(TOPICS, SettingType.LIST, "The topics to read.", [], _HIGH, unique_values, COMMON, Width.LONG, "Topics",
            order=4),
    Setting(TOPICS_REGEX, _S, "A regular expression for the topics to read, instead of a list.", "", _HIGH,
            regular_expression, COMMON, Width.LONG, "Topics regex", order=4),
    Setting(DEAD_LETTERS, _S, "The topic that gets records which cannot be processed; empty: none.", "", _MEDIUM,
            group=ERRORS, width=Width.MEDIUM, display_name="Dead Letter Queue Topic Name", order=6),
    Setting("errors.deadletterqueue.topic.replication.factor", SettingType.SHORT, "The replication factor of the "
            "topic of dead letters, if it is created.", 3, _MEDIUM, group=ERRORS, width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor", order=7),
    Setting("errors.deadletterqueue.context.headers.enable", _B, "Whether dead letters have headers that describe the "
            "failure (__connect.errors.*).", False, _MEDIUM, group=ERRORS, width=Width.MEDIUM,
            display_name="Enable Error Context Headers", order=8),
)  # fmt: skip


def sink_problems(given: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Return what is wrong with the topics of a sink: messages by the name of the setting."""
    topics, pattern = (given.get(TOPICS) or "").strip(), (given.get(TOPICS_REGEX) or "").strip()
    dead_letters = (given.get(DEAD_LETTERS) or "").strip()
    found: dict[str, list[str]] = {}

    def add(text: str, *names: str) -> None:
        for name in names:
            found.setdefault(name, []).append(text)

    if topics and pattern:
        add("topics and topics.regex are mutually exclusive options, but both are set.", TOPICS, TOPICS_REGEX)
    if not topics and not pattern:
        add("Must configure one of topics or topics.regex", TOPICS, TOPICS_REGEX)
    names = list(dict.fromkeys(each.strip() for each in topics.split(",") if each.strip()))
    if dead_letters and dead_letters in names:
        place = f"('topics=[{', '.join(names)}]') consumed by the connector"
        add(f"The DLQ topic '{dead_letters}' may not be included in the list of topics {place}", TOPICS)
    if dead_letters and pattern and _matches(pattern, dead_letters):
        place = f"('topics.regex={pattern}') consumed by the connector"
        add(f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics {place}", TOPICS_REGEX)
    return found


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False  # the validator of the setting reports it
