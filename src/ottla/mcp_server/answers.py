"""Limits the size of an answer: long texts are cut, and long lists lose their ends, with a note of their lengths."""

from __future__ import annotations

import json
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024
"""The largest answer. Assistants have little room, and pay for each word."""
LONGEST_TEXT: Final = 8_000


def answer_text(data: dict[str, Any], most: int = MOST_BYTES) -> str:
    """Return data as JSON of at most about `most` bytes. `shortened` has the full lengths of lists that were cut."""
    fitting = {name: _cut(value) for name, value in data.items()}
    shortened: dict[str, int] = {}
    while len(text := _json({**fitting, "shortened": shortened} if shortened else fitting)) > most:
        sizes = {name: len(_json(each)) for name, each in fitting.items() if isinstance(each, list) and len(each) > 1}
        if not sizes:
            return _json({"error": f"The answer has {len(text):,} bytes, more than {most:,}: ask for a part of it"})
        longest = max(sizes, key=lambda name: sizes[name])
        rows = fitting[longest]
        shortened.setdefault(longest, len(rows))
        fitting[longest] = rows[: len(rows) // 2]
    return text


def _cut(value: Any) -> Any:
    """Return a value whose texts have at most `LONGEST_TEXT` characters."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    return [_cut(each) for each in value] if isinstance(value, (list, tuple)) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
