"""The table of APIs for the documentation: what is declared, and what a broker serves."""

from collections.abc import Mapping

from ottla.protocol.registry import API


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def markdown_table(served: Mapping[int, tuple[int, int]]) -> str:
    """A Markdown table of every API by key. `served` has the first and last served version of each API."""
    lines = ["| Key | API | Declared | Flexible | Served |", "|--:|---|---|---|---|"]
    for info in API.values():
        flexible = f"{info.flexible_from}+" if info.is_flexible(info.max_version) else "never"
        answered = _range(*served[info.key]) if info.key in served else "-"
        declared = _range(info.min_version, info.max_version)
        lines.append(f"| {info.key} | {info.name} | {declared} | {flexible} | {answered} |")
    return "\n".join(lines) + "\n"
