"""What a setting is: its type, default, limits, importance, how it may be changed, and whether it works here.

`BROKER_SETTINGS`, `TOPIC_SETTINGS` and `GROUP_SETTINGS` map Kafka's names to rows. A row's `status` says what Ottla
does with it, so that nothing is ignored in silence:

- works: it does what Kafka's documentation says;
- reported: it is accepted, has no effect, and a value other than the default earns a warning (a number of threads);
- refused: a value other than the default asks for behaviour that is not there, and is an error (an authorizer).

`parse_value` turns text into a typed value, `format_value` back into Kafka's text form. A row's validator is text:
`1..`, `1..9|-1`, `a|b`, `any-case:a|b`, `non-empty`, `throttled-replicas`, `offset-reset`, or `-` for none. A list's
choices hold for each of its items.
"""

import re
from typing import TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.named import NamedTuple
from ottla.config import broker_rows, group_rows, security_rows, topic_rows

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

# The numbers of DescribeConfigs (`ConfigType`).
TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_BITS = {"short": 15, "int": 31, "long": 63}
# Compiled by their first use, of which a start has none.
_THROTTLED = r"\d+:\d+"
_DURATION = r"(?i)P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"


class Setting(NamedTuple):
    """One row."""

    name: str
    type: str
    default: Value
    validator: str
    importance: str
    update: str
    status: str
    doc: str

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type == "password"

    @property
    def type_code(self) -> int:
        """The type's number in DescribeConfigs."""
        return TYPE_CODES[self.type]

    @property
    def default_text(self) -> str | None:
        """The default in Kafka's text form."""
        return format_value(self, self.default)


def parse_value(setting: Setting, text: str) -> Value:
    """The typed value of `text`; raises KafkaError INVALID_CONFIG, whose message names the setting and the limit."""
    text = text.strip()
    problem: str | None
    try:
        value = _convert(setting.type, text)
    except ValueError as error:
        problem = str(error)
    else:
        problem = _violation(setting, value)
        if problem is None:
            return value
    shown = "(hidden)" if setting.sensitive else repr(text[:200])
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {shown} for {setting.name}: {problem}")


def format_value(setting: Setting, value: Value) -> str | None:
    """Kafka's text form of a value; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if setting.type == "double":
        return _java_double(float(value))
    return str(value)


def _java_double(value: float) -> str:
    """As Java's `Double.toString` writes it: `0.5`, `1.7976931348623157E308`."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    first = len(digits) - len(digits.lstrip("0"))
    digits = digits[first:].rstrip("0")
    power = int(exponent or 0) + len(whole) - 1 - first
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"


def _convert(kind: str, text: str) -> Value:
    if kind in _BITS:
        return _convert_integer(kind, text)
    if kind == "boolean":
        if text.lower() not in {"true", "false"}:
            raise ValueError("it must be true or false")
        return text.lower() == "true"
    if kind == "double":
        try:
            return float(text)
        except ValueError as error:
            raise ValueError("it is not a number") from error
    if kind == "list":
        # An item that comes twice counts once, as in Kafka (KIP-1161).
        return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    return text


def _convert_integer(kind: str, text: str) -> int:
    # `int` would take "1_000" and digits of other scripts, and any length.
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        raise ValueError(f"it is not a whole number ({kind})")
    value = int(text)
    if not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise ValueError(f"it does not fit into {_BITS[kind] + 1} bits")
    return value


def _violation(setting: Setting, value: Value) -> str | None:
    if isinstance(value, tuple) and "" in value:
        return "it has an empty item"
    rule = setting.validator
    if rule == "-":
        return None
    if rule == "non-empty":
        return None if value else "it must not be empty"
    if rule == "throttled-replicas":
        return _throttled_violation(value)
    if rule == "offset-reset":
        return _reset_violation(str(value))
    if isinstance(value, int | float):
        return _range_violation(rule, value)
    return _choice_violation(rule, value)


def _range_violation(rule: str, value: float) -> str | None:
    limits, _, exception = rule.partition("|")
    if exception and value == int(exception):
        return None
    least, _, most = limits.partition("..")
    if value != value or value < float(least):  # only NaN differs from itself
        return f"it must be at least {least}" + (f", or {exception}" if exception else "")
    if most and value > float(most):
        return f"it must be at most {most}"
    return None


def _choice_violation(rule: str, value: Value) -> str | None:
    any_case = rule.startswith("any-case:")
    choices = rule.removeprefix("any-case:").split("|")
    for item in value if isinstance(value, tuple) else (str(value),):
        if (item.upper() if any_case else item) not in choices:
            return f"{item[:200]!r} is none of {', '.join(choices)}"
    return None


def _throttled_violation(value: Value) -> str | None:
    if isinstance(value, tuple) and (value == ("*",) or all(re.fullmatch(_THROTTLED, item) for item in value)):
        return None
    return "it must be * or partition:broker,partition:broker,..."


def _reset_violation(value: str) -> str | None:
    if value in {"latest", "earliest"} or (
        value.startswith("by_duration:") and re.fullmatch(_DURATION, value.removeprefix("by_duration:"))
    ):
        return None
    return "it must be latest, earliest or by_duration: and an ISO 8601 duration such as PT1H"


def _load(rows: str, *, with_update: bool) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    lines = rows.splitlines()
    for line, doc in zip(lines[::2], lines[1::2], strict=True):
        columns = line.split(" ")
        if not with_update:
            columns.insert(5, CLUSTER_WIDE)
        name, kind, default, validator, importance, update, status = columns
        settings[name] = Setting(
            name,
            kind,
            None if default == "null" else _convert(kind, "" if default == '""' else default),
            validator,
            importance,
            update,
            status,
            doc[4:],
        )
    return settings


BROKER_SETTINGS = _load(broker_rows.ROWS, with_update=True) | _load(security_rows.ROWS, with_update=True)
TOPIC_SETTINGS = _load(topic_rows.ROWS, with_update=False)
GROUP_SETTINGS = _load(group_rows.ROWS, with_update=False)
