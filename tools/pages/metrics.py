"""The table of metrics in docs/metrics.md, which tests compare with the declarations."""

from ottla.metrics.family import Families


def markdown(families: Families) -> str:
    """Return the table."""
    rows = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for family in families.values():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(rows) + "\n"
