"""`ServerSetting`: one setting of a broker, topic or group, with Kafka's definition and Ottla's support of it.

A setting's `status` ensures that no setting is ignored silently:

- works: it does what Kafka's documentation says;
- reported: it is accepted and has no effect; a value other than the default logs a warning (e.g. a number of threads);
- refused: a value other than the default needs unsupported behaviour, and is an error (e.g. tiered storage).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ottla.common.settings import Kind, Setting
from ottla.config.values import Value, format_value

Importance: TypeAlias = Literal["high", "medium", "low"]
Status: TypeAlias = Literal["works", "reported", "refused"]
Update: TypeAlias = Literal["read-only", "per-broker", "cluster-wide"]
Form: TypeAlias = Literal["addresses", "codec", "offset-reset", "regex", "throttled-replicas"]

BOOLEAN: Final[Kind] = "bool"
SHORT: Final[Kind] = "short"
INT: Final[Kind] = "int"
LONG: Final[Kind] = "long"
DOUBLE: Final[Kind] = "float"
STRING: Final[Kind] = "str"
PASSWORD: Final[Kind] = "password"  # noqa: S105 - the name of a kind
CLASS: Final[Kind] = "class"
LIST: Final[Kind] = "list"

HIGH: Final[Importance] = "high"
MEDIUM: Final[Importance] = "medium"
LOW: Final[Importance] = "low"

WORKS: Final[Status] = "works"
REPORTED: Final[Status] = "reported"
REFUSED: Final[Status] = "refused"

READ_ONLY: Final[Update] = "read-only"
PER_BROKER: Final[Update] = "per-broker"
CLUSTER_WIDE: Final[Update] = "cluster-wide"

# Kafka's name of each kind, and its number in DescribeConfigs (`ConfigType`).
_TYPES: Final[dict[Kind, tuple[str, int]]] = {
    BOOLEAN: ("boolean", 1),
    STRING: ("string", 2),
    INT: ("int", 3),
    SHORT: ("short", 4),
    LONG: ("long", 5),
    DOUBLE: ("double", 6),
    LIST: ("list", 7),
    CLASS: ("class", 8),
    PASSWORD: ("password", 9),
}


@dataclass(frozen=True, slots=True)
class ServerSetting(Setting):
    """One setting of a broker, topic or group. Settings of topics and groups can always be changed: CLUSTER_WIDE.

    `limits.py` checks the limits: `also` is a number that is allowed outside of `low` and `high`. With `any_case` the
    case of letters in `choices` does not matter. `non_empty` text or lists need a value. `form` names a syntax that
    `limits.py` knows.
    """

    default: Value
    importance: Importance
    status: Status
    update: Update = CLUSTER_WIDE
    also: int | None = field(default=None, kw_only=True)
    any_case: bool = field(default=False, kw_only=True)
    non_empty: bool = field(default=False, kw_only=True)
    form: Form | None = field(default=None, kw_only=True)

    @property
    def type(self) -> str:
        """Kafka's name of the kind."""
        return _TYPES[self.kind][0]

    @property
    def type_code(self) -> int:
        """The type's number in DescribeConfigs."""
        return _TYPES[self.kind][1]

    @property
    def default_text(self) -> str | None:
        """The default in Kafka's text form."""
        return self.format(self.default)

    def format(self, value: Value) -> str | None:
        """Return Kafka's text form of a value; None stays None."""
        return format_value(value)
