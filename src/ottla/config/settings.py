"""What a setting is: its type, default, limits, importance, how it may be changed, and whether it works here.

`BROKER_SETTINGS`, `TOPIC_SETTINGS` and `GROUP_SETTINGS` map Kafka's names to rows. A row's `status` says what Ottla
does with it, so that nothing is ignored in silence:

- works: it does what Kafka's documentation says;
- reported: it is accepted, has no effect, and a value other than the default earns a warning (a number of threads);
- refused: a value other than the default asks for behaviour that is not there, and is an error (an authorizer).

`parse_value` turns text into a typed value, `format_value` back into Kafka's text form. `values.py` has the types,
`limits.py` what a row's validator means.
"""

from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import broker_rows, group_rows, security_rows, topic_rows
from ottla.config.limits import invalid, refusal
from ottla.config.values import TYPE_CODES, Value, convert
from ottla.config.values import format_value as _format

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"


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
    """The typed value of `text`; raises KafkaError INVALID_CONFIG with Kafka's message."""
    try:
        value = convert(setting.type, text)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, invalid(setting.name, text, str(error))) from error
    problem = refusal(setting.name, setting.type, setting.validator, value)
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, problem)
    # An item that comes twice counts once, as in Kafka (KIP-1161).
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value


def format_value(setting: Setting, value: Value) -> str | None:
    """Kafka's text form of a value; None stays None."""
    return _format(setting.type, value)


def _default(kind: str, text: str) -> Value:
    if text == "null":
        return None
    # Numbers of rows are plain: the pattern of Java's doubles would cost each start a millisecond.
    return float(text) if kind == "double" else convert(kind, "" if text == '""' else text)


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
            _default(kind, default),
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
