"""Limits of single settings: a rule for each row, as text, and Kafka's message for a value outside of it.

    1..             at least 1                            1..9       from 1 to 9
    1..9|-1         from 1 to 9, or -1                    codec      the number of a compression codec
    a|b             one of these words                    any-case:a|b   the same, in capital or small letters
    non-empty       text or a list that is not empty      non-empty:a|b  a list of these words that is not empty
    throttled-replicas, offset-reset                      what Kafka calls so
    -               any value of the type

A list's words hold for each of its items, and no item of a list may be empty.
"""

import re

from ottla.config.values import Value, format_value

_CODECS = range(5)
# Compiled by their first use: a start with default settings uses none of them.
_THROTTLED = r"([0-9]+:[0-9]+)?"
_DURATION = r"(?i)\+?P(?=.)([+]?\d+D)?(T(?=.)(\+?\d+H)?(\+?\d+M)?(\+?\d+([.,]\d{0,9})?S)?)?"


def refusal(name: str, kind: str, rule: str, value: Value) -> str | None:
    """Kafka's message if `value` is outside the limits of the setting `name`, else None."""
    if rule == "throttled-replicas":
        return _throttled(name, value)
    if isinstance(value, tuple):
        return _list(name, rule, value)
    if rule == "-":
        return None
    if rule == "codec":
        return None if value in _CODECS else invalid(name, str(value), f"Unknown compression type id: {value}")
    if rule == "non-empty":
        return invalid(name, "", "String must be non-empty") if value == "" else None
    if rule == "offset-reset":
        return _offset_reset(name, str(value))
    if isinstance(value, int | float):
        return _range(name, kind, rule, value)
    return _choice(name, rule, str(value))


def invalid(name: str, value: str, problem: str) -> str:
    """Kafka's `ConfigException` of a name, a value and what is wrong with it. A long value is cut."""
    shown = value if len(value) <= 1000 else f"{value[:1000]}..."
    return f"Invalid value {shown} for configuration {name}: {problem}"


def _range(name: str, kind: str, rule: str, value: float) -> str | None:
    limits, _, exception = rule.partition("|")
    least, _, most = limits.partition("..")
    shown = format_value(kind, value) or ""
    if exception:
        if value == int(exception) or int(least) <= value <= int(most):
            return None
        return invalid(name, shown, f"Value must be between {least} and {most} or equal to {exception}")
    if value < float(least):
        return invalid(name, shown, f"Value must be at least {least}")
    if most and value > float(most):
        return invalid(name, shown, f"Value must be no more than {most}")
    return None


def _choice(name: str, rule: str, value: str) -> str | None:
    any_case = rule.startswith("any-case:")
    choices = rule.removeprefix("any-case:").split("|")
    if (value.upper() if any_case else value) in choices:
        return None
    how = " (case insensitive)" if any_case else ""
    return invalid(name, value, f"String must be one of{how}: {', '.join(choices)}")


def _list(name: str, rule: str, items: tuple[str, ...]) -> str | None:
    needed, _, words = rule.rpartition(":") if rule.startswith("non-empty:") else (rule, "", rule)
    choices = "" if words in {"-", "non-empty"} else words
    if not items and needed.startswith("non-empty"):
        valid = f"[{', '.join(choices.split('|'))}]" if choices else "any non-empty value"
        return f"Configuration '{name}' must not be empty. Valid values include: {valid}"
    for item in items:
        if not item:
            return f"Configuration '{name}' values must not be empty."
        problem = _choice(name, choices, item) if choices else None
        if problem:
            return problem
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
