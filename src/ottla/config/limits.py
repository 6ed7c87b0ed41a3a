"""Limits of single settings: Kafka's message for a value outside of a row's limits.

The limits are fields of `ServerSetting`. For a list, the choices apply to each item, and no item may be empty.
"""

import re

from ottla.config.listeners import parse_address
from ottla.config.server_setting import ServerSetting
from ottla.config.values import Value, format_value

_CODECS = range(5)
# Compiled by the first use: a start with default settings does not need them.
_THROTTLED = r"([0-9]+:[0-9]+)?"
_DURATION = r"(?i)\+?P(?=.)([+]?\d+D)?(T(?=.)(\+?\d+H)?(\+?\d+M)?(\+?\d+([.,]\d{0,9})?S)?)?"


def limit_violation(setting: ServerSetting, value: Value) -> str | None:
    """Return Kafka's message if `value` is outside the limits of the setting, else None."""
    if setting.form == "throttled-replicas":
        return _throttled(setting.name, value)
    if setting.form == "codec":
        return None if value in _CODECS else invalid(setting.name, str(value), f"Unknown compression type id: {value}")
    if setting.form == "offset-reset":
        return _offset_reset(setting.name, str(value))
    if setting.form == "regex":
        return _regex(setting.name, str(value))
    if setting.form == "addresses" and isinstance(value, tuple):
        return _list(setting, value) or _addresses(setting.name, value)
    if isinstance(value, tuple):
        return _list(setting, value)
    if setting.non_empty and value == "":
        return invalid(setting.name, "", "String must be non-empty")
    if isinstance(value, int | float):
        return _range(setting, value)
    return _choice(setting, str(value)) if setting.choices else None


def invalid(name: str, value: str, problem: str) -> str:
    """Return the text of Kafka's `ConfigException` for a name, a value and a problem. A long value is cut."""
    shown = value if len(value) <= 1000 else f"{value[:1000]}..."
    return f"Invalid value {shown} for configuration {name}: {problem}"


def _range(setting: ServerSetting, value: float) -> str | None:
    name, low, high, also = setting.name, setting.low, setting.high, setting.also
    is_low, is_high = low is not None and value < low, high is not None and value > high
    if value == also or not (is_low or is_high):
        return None
    shown = format_value(value) or ""
    if also is not None:
        return invalid(name, shown, f"Value must be between {low} and {high} or equal to {also}")
    if is_low:
        return invalid(name, shown, f"Value must be at least {low}")
    return invalid(name, shown, f"Value must be no more than {high}")


def _choice(setting: ServerSetting, value: str) -> str | None:
    if (value.upper() if setting.any_case else value) in setting.choices:
        return None
    how = " (case insensitive)" if setting.any_case else ""
    return invalid(setting.name, value, f"String must be one of{how}: {', '.join(setting.choices)}")


def _list(setting: ServerSetting, items: tuple[str, ...]) -> str | None:
    if not items and setting.non_empty:
        valid = f"[{', '.join(setting.choices)}]" if setting.choices else "any non-empty value"
        return f"Configuration '{setting.name}' must not be empty. Valid values include: {valid}"
    for item in items:
        if not item:
            return f"Configuration '{setting.name}' values must not be empty."
        problem = _choice(setting, item) if setting.choices else None
        if problem:
            return problem
    return None


def _regex(name: str, value: str) -> str | None:
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        return invalid(name, value, f"It is not a regular expression: {error}")
    return None


def _addresses(name: str, items: tuple[str, ...]) -> str | None:
    for item in items:
        try:
            parse_address(item)
        except ValueError as error:
            return invalid(name, item, str(error))
    return None


def _throttled(name: str, value: Value) -> str | None:
    items = value if isinstance(value, tuple) else ()
    if "".join(items) == "*" or all(re.fullmatch(_THROTTLED, item) for item in items):
        return None
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    shown = f"[{', '.join(items)}]"
    return invalid(name, shown, f"{name} must be the literal '*' or a list of replicas in the following format: {form}")


def _offset_reset(name: str, value: str) -> str | None:
    if value in {"latest", "earliest"} or (
        value.startswith("by_duration:") and re.fullmatch(_DURATION, value.removeprefix("by_duration:"))
    ):
        return None
    form = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    return invalid(name, value, f"Invalid value `{value[:1000]}` for configuration {name}. {form}")
