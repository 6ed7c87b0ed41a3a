"""The common attributes of all settings: name, kind of value, default, limits and description.

Every table of settings is a sequence of `Setting` objects of one of two classes:

- `ottla.config.server_setting.ServerSetting` for brokers, topics and groups. Their values are text in Java's syntax.
- `ottla.clients.options.Option` for clients, the command line and Spark's `kafka.*` options. Their values are Python
  objects or text.

A setting is data. Each package has one function that reads a value of its settings and reports a violated limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

Kind: TypeAlias = Literal["bool", "short", "int", "long", "float", "str", "password", "class", "list", "object"]


class ChangingText(str):
    """A text whose source can change, such as a password in a file. It is equal to its first value."""

    __slots__ = ("_read", "values")
    _read: Callable[[], str]
    values: set[str]
    """All values so far."""

    def __new__(cls, value: str, read: Callable[[], str]) -> Self:
        """`read` returns the value as it is now. It may block, and raise any error."""
        made = super().__new__(cls, value)
        made._read, made.values = read, {value}
        return made

    def current(self) -> str:
        """Return the value as it is now."""
        value = self._read()
        self.values.add(value)
        return value


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, by Kafka's `name`. Times are in milliseconds and sizes in bytes, as in Kafka.

    `low` and `high` are inclusive limits of a number. `choices` are the allowed words, for a list the words of each
    item.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    low: float | None = field(default=None, kw_only=True)
    high: float | None = field(default=None, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def python_name(self) -> str:
        """The name as a keyword argument."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind == "password"
