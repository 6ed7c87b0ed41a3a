"""Versions of plugins, and the ranges of versions that a configuration may ask for (KIP-891).

A range is Maven's: `1.0` means exactly this version, as in Kafka Connect; `[1.0,2.0)`, `(,1.5]` and unions of such
ranges. Source: org.apache.kafka.connect.runtime.isolation.PluginUtils.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import zip_longest
from typing import Final, NamedTuple

from ottla.connect.errors import BadRequestError

_RANGE: Final = re.compile(r"([\[(])([^\[\](),]*)(?:(,)([^\[\](),]*))?([\])])")
_PARTS: Final = re.compile(r"\d+|[a-z]+")
_QUALIFIERS: Final = {"alpha": -5, "beta": -4, "milestone": -3, "rc": -2, "cr": -2, "snapshot": -1, "final": 0, "ga": 0}
_RELEASE: Final = (0, 0, "")


class Bounds(NamedTuple):
    """One part of a range; an empty text has no limit."""

    low: str
    low_included: bool
    high: str
    high_included: bool

    def contains(self, version: str) -> bool:
        """Whether a version is in this part."""
        low = compare(version, self.low) if self.low else 1
        high = compare(version, self.high) if self.high else -1
        return (low > 0 or (low == 0 and self.low_included)) and (high < 0 or (high == 0 and self.high_included))


def compare(one: str, other: str) -> int:
    """Return whether a version is older than another one (-1), equal (0) or newer (1)."""
    for left, right in zip_longest(_key(one), _key(other), fillvalue=_RELEASE):
        if left != right:
            return -1 if left < right else 1
    return 0


@cache
def _key(version: str) -> tuple[tuple[int, int, str], ...]:
    parts = []
    for part in _PARTS.findall(version.lower()):
        if part.isdecimal():
            parts.append((0, int(part), ""))
        else:
            parts.append((_QUALIFIERS.get(part, 0), 0, "" if part in _QUALIFIERS else part))
    return tuple(parts)


def parse_range(text: str) -> list[Bounds]:
    """Return the parts of a range. Raises BadRequestError."""
    text = text.strip()
    if not text.startswith(("[", "(")):
        if any(each in text for each in "[](),"):
            raise BadRequestError(f"Invalid version range: {text}")
        return [Bounds(text, True, text, True)]
    parts, at = [], 0
    while at < len(text):
        match = _RANGE.match(text, at)
        if match is None:
            raise BadRequestError(f"Unbounded range: {text}")
        opening, low, comma, high, closing = match.groups()
        if comma is None:
            if (opening, closing) != ("[", "]"):
                raise BadRequestError(f"Single version must be surrounded by []: {text}")
            high = low
        parts.append(Bounds(low.strip(), opening == "[", (high or "").strip(), closing == "]"))
        at = match.end()
        at += len(text[at:]) - len(text[at:].lstrip(", "))
    return parts


def matches(version: str, wanted: str | None) -> bool:
    """Whether a version satisfies a range; None, an empty text and `latest` are satisfied by each one."""
    if wanted is None or not wanted.strip() or wanted.strip() == "latest":
        return True
    return any(each.contains(version) for each in parse_range(wanted))


def absent(plugin: str, wanted: str, version: str) -> str:
    """Return Kafka's message for a plugin without a version that a configuration asks for."""
    shown = wanted.strip()
    if not shown.startswith(("[", "(")):
        shown = f"[{shown},{shown}]"
    return f"Plugin {plugin} not found that matches the version range {shown}, available versions: [{version}]"
