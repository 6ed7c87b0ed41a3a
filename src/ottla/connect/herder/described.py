"""Definitions of settings and results of validation, as the REST API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.connect.config.definition import ConfigDef, ConfigValue, Importance, Setting, text_of

_IMPORTANCE: Final = {Importance.HIGH: 0, Importance.MEDIUM: 1, Importance.LOW: 2}


@dataclass
class Row:
    """A setting: its definition, None if it is unknown, and the value."""

    definition: dict[str, Any] | None
    value: ConfigValue

    def as_json(self) -> dict[str, Any]:
        """Return the row of the answer to a validation."""
        value = {
            "name": self.value.name,
            "value": self.value.value,
            "recommended_values": self.value.recommended_values,
            "errors": self.value.errors,
            "visible": self.value.visible,
        }
        return {"definition": self.definition, "value": value}


@dataclass
class Validation:
    """The result of a validation. `name` is the class as it was given."""

    name: str
    groups: list[str]
    rows: list[Row]

    @property
    def messages(self) -> list[str]:
        """All faults."""
        return [each for row in self.rows for each in row.value.errors]

    def as_json(self) -> dict[str, Any]:
        """Return the answer to a validation."""
        rows = [row.as_json() for row in self.rows]
        return {"name": self.name, "error_count": len(self.messages), "groups": self.groups, "configs": rows}


def orders(settings: Iterable[Setting]) -> dict[str, int]:
    """Return the place of each setting in its group; -1 without a group."""
    count: Counter[str] = Counter()
    found = {}
    for setting in settings:
        if setting.group is None:
            found[setting.name] = -1
            continue
        count[setting.group] = setting.order if setting.order is not None else count[setting.group] + 1
        found[setting.name] = count[setting.group]
    return found


def definition(setting: Setting, order: int, prefix: str = "") -> dict[str, Any]:
    """Return a definition as the REST API shows it."""
    return {
        "name": prefix + setting.name,
        "type": str(setting.type),
        "required": setting.required,
        "default_value": None if setting.required else text_of(setting.default, setting.type),
        "importance": str(setting.importance),
        "documentation": setting.doc,
        "group": setting.group,
        "width": str(setting.width),
        "display_name": setting.display_name or setting.name,
        "dependents": list(setting.dependents),
        "order_in_group": order,
    }


def definitions(settings: ConfigDef | Sequence[Setting]) -> list[dict[str, Any]]:
    """Return the definitions of all settings, in order."""
    places = orders(settings)
    return [definition(each, places[each.name]) for each in settings]


def groups(settings: Iterable[Setting]) -> list[str]:
    """Return the groups of settings, in the order in which they occur."""
    return list(dict.fromkeys(each.group for each in settings if each.group is not None))


def embedded(settings: Iterable[Setting], prefix: str, group: str, first: int) -> list[Setting]:
    """Return the settings of a plugin below a prefix, in the order of Kafka's ConfigDef.embed."""
    given = list(settings)
    places, known = orders(given), groups(given)

    def key(setting: Setting) -> tuple[int, int, bool, int, str]:
        rank = -1 if setting.group is None else known.index(setting.group)
        return rank, places[setting.name], not setting.required, _IMPORTANCE[setting.importance], setting.name

    return [
        replace(
            each,
            name=prefix + each.name,
            group=group if each.group is None else f"{group}: {each.group}",
            order=first + number,
            display_name=each.display_name or each.name,
        )
        for number, each in enumerate(sorted(given, key=key))
    ]
