"""Prints the table of metrics in docs/metrics.md: `python -m ottla.broker.metrics.table`."""

import sys

from ottla.broker.metrics.families import FAMILIES


def markdown() -> str:
    """Return the table."""
    rows = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
