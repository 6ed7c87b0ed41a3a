"""`ssl.principal.mapping.rules`: from the distinguished name of a certificate to the name of a user. KIP-371.

Rules are separated by commas: `DEFAULT` returns the whole name, `RULE:pattern/replacement/[LU]` returns the replacement
if the pattern matches the whole name. The first rule that matches decides. Patterns and replacements have Java's
syntax: `$1` is a group, a backslash makes the next character literal.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
# A character that a backslash makes literal, or the number or the name of a group.
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


class NoMatchingRule(ValueError):
    """No rule matches the distinguished name."""


class _Rule(NamedTuple):
    """`pattern` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises ValueError with Kafka's message, or one about a pattern."""
        self._rules: list[_Rule] = []
        for split in _SPLITTER.finditer(text.strip()):
            rule = split[1]
            match = _PARSER.match(rule)
            if match is None or match.end() != len(rule):
                rest = rule[match.end() if match else 0 :]
                raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{rest}`")
            if match[1] is not None:
                self._rules.append(_Rule(None, "", ""))
            elif match[2] is not None:
                self._rules.append(_Rule(_compiled(match[2]), match[3], match[4]))

    def name(self, distinguished_name: str) -> str:
        """Return the user's name. Raises NoMatchingRule."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished_name
            if pattern.fullmatch(distinguished_name):
                name = pattern.sub(lambda match: _expand(match, replacement), distinguished_name)  # noqa: B023
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise NoMatchingRule(f"No rules apply to {distinguished_name}")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern))
    except re.error as error:
        raise ValueError(f"Invalid rule: the pattern `{pattern}` is not a regular expression: {error}") from error


def _expand(match: re.Match[str], replacement: str) -> str:
    """Return a replacement with its groups. As in Kafka, the number of a missing group is literal text."""

    def group(reference: re.Match[str]) -> str:
        literal, digits, name = reference.groups()
        if literal is not None:
            return str(literal)
        if name is not None:
            return match[name] or ""
        # The longest number that is a group: $12 is group 1 and the digit 2 if there is no group 12.
        for end in range(len(digits), 0, -1):
            if int(digits[:end]) <= match.re.groups:
                return (match[int(digits[:end])] or "") + digits[end:]
        return str(reference[0])

    return _REFERENCE.sub(group, replacement)
