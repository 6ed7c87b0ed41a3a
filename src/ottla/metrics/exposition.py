"""The two text formats of a scrape: Prometheus's own, version 0.0.4, and OpenMetrics 1.0.0.

In both, the lines of a metric follow each other. OpenMetrics names a counter without `_total` in its comments, and
ends with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.common.slices import Slices
from ottla.metrics.family import COUNTER, Families, Family

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SUFFIX: Final = "_total"


def escaped(text: str) -> str:
    """Return the value of a label, escaped."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def labelled(**labels: object) -> str:
    """Return labels as they follow a name, for a few samples; code for many samples builds its own text."""
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items()) + "}"


class Samples:
    """The lines of a scrape, by metric; `table` has the order of most of them."""

    def __init__(self, table: Families) -> None:
        self._table = table
        self._lines: dict[str, list[str]] = {}
        self._others: dict[str, Family] = {}
        """The metrics of clients, which are not in the table."""

    def of(self, family: Family) -> list[str]:
        """The lines of a metric, to append to."""
        lines = self._lines.get(family.name)
        if lines is None:
            lines = self._lines[family.name] = []
            if family.name not in self._table:
                self._others[family.name] = family
        return lines

    def add(self, family: Family, value: float, labels: str = "") -> None:
        """Add one sample, with labels from `labelled`."""
        self.of(family).append(f"{family.name}{labels} {value}")

    def names(self) -> Iterable[str]:
        """The metrics that have a sample."""
        return (name for name, lines in self._lines.items() if lines)

    def render(self, content_type: str) -> Slices[list[bytes]]:
        """Return the body in parts, in the order of the table of metrics, then the metrics of clients."""
        is_open = content_type == OPENMETRICS
        parts = []
        for name, family in (*self._table.items(), *self._others.items()):
            lines = self._lines.get(name)
            if lines:
                parts.append(_comments(family, is_open=is_open))
                for start in range(0, len(lines), _JOINED_AT_ONCE):
                    parts.append(("\n".join(lines[start : start + _JOINED_AT_ONCE]) + "\n").encode())
                    yield
        if is_open:
            parts.append(b"# EOF\n")
        return parts


_JOINED_AT_ONCE: Final = 5_000


def _comments(family: Family, *, is_open: bool) -> bytes:
    name = family.name.removesuffix(_SUFFIX) if is_open and family.kind == COUNTER else family.name
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n".encode()


def content_type(headers: Mapping[str, str]) -> str:
    """Return the format that the header Accept prefers; OpenMetrics only if it is named."""
    for entry in headers.get("accept", "").split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        if name == "application/openmetrics-text" and "q=0" not in parameters:
            return OPENMETRICS
    return PROMETHEUS
