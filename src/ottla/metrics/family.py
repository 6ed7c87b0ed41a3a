"""The declaration of a metric: name, type, meaning, labels; and a table of them, in the order of a scrape."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "summary", "histogram"]
COUNTER: Final[Kind] = "counter"
GAUGE: Final[Kind] = "gauge"
SUMMARY: Final[Kind] = "summary"
HISTOGRAM: Final[Kind] = "histogram"


class Family(NamedTuple):
    """One metric; counters have the suffix `_total` in their name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Families(dict[str, Family]):
    """Metrics by their name, in the order of a scrape."""

    def add(self, name: str, kind: Kind, text: str, *labels: str) -> Family:
        """Add a metric, and return it."""
        family = self[name] = Family(name, kind, text, labels)
        return family
