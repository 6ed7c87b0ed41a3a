"""Fields of records that some users must not see: a TOML file with rules.

    [[mask]]
    users = ["*"]                       # for these users; default: all
    except = ["auditor"]                # but not for these
    topics = ["customers*"]             # default: all topics
    fields = ["value.email", "value.cards[].number", "key"]
    headers = ["authorization"]

A key or value that is not JSON has no fields, so the whole of it is masked if a rule masks a field of it. Searches see
only masked text: a search must not reveal the content of a field.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from ottla.common.failure import Failure, reading

MASKED: Final = "•••"
_NAMES: Final = {"users", "except", "topics", "fields", "headers"}


class Rule(NamedTuple):
    """One rule of the file."""

    users: tuple[str, ...] = ("*",)
    exempt: tuple[str, ...] = ()
    topics: tuple[str, ...] = ("*",)
    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def applies(self, user: str, topic: str) -> bool:
        """Whether the rule is for this user and topic."""
        return _matches(self.users, user) and not _matches(self.exempt, user) and _matches(self.topics, topic)


class Mask(NamedTuple):
    """The masked parts of the records of one topic: paths in keys and values, and names of headers in lower case."""

    key: tuple[tuple[str, ...], ...] = ()
    value: tuple[tuple[str, ...], ...] = ()
    headers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.headers)

    def text(self, part: str, text: str | None) -> str | None:
        """Return the key or value with masked fields. Text that is not JSON is masked completely."""
        paths = self.key if part == "key" else self.value
        if text is None or not paths:
            return text
        if () in paths:
            return MASKED
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return MASKED
        if not isinstance(content, (dict, list)):
            return MASKED
        for path in paths:
            _mask(content, path)
        return json.dumps(content, ensure_ascii=False)

    def hides_header(self, name: str) -> bool:
        """Whether the values of a header are masked."""
        return _matches(self.headers, name.lower())


class Masks(NamedTuple):
    """All rules."""

    rules: tuple[Rule, ...] = ()

    def of(self, user: str, topic: str) -> Mask:
        """Return the mask for a user and a topic."""
        rules = [rule for rule in self.rules if rule.applies(user, topic)]
        paths = [_path(field) for rule in rules for field in rule.fields]
        return Mask(
            tuple(path for part, path in paths if part == "key"),
            tuple(path for part, path in paths if part == "value"),
            tuple(name.lower() for rule in rules for name in rule.headers),
        )


def read_masks(path: str) -> Masks:
    """Read the file. Raises Failure for a rule that is not understood: a misspelt rule would mask nothing."""
    with reading(f"the file {path}"), open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Failure(f"{path} is not TOML: {error}", exit_code=2) from None
    if content.keys() - {"mask"} or not isinstance(content.get("mask"), list):
        raise Failure(f"{path} has no rules", "Each rule begins with [[mask]].", exit_code=2)
    return Masks(tuple(_rule(path, number, row) for number, row in enumerate(content["mask"], 1)))


def _rule(path: str, number: int, row: Mapping[str, Any]) -> Rule:
    where = f"{path}, rule {number}"
    if unknown := sorted(row.keys() - _NAMES):
        raise Failure(f"{where}: {unknown[0]} is unknown", f"A rule has {', '.join(sorted(_NAMES))}.", exit_code=2)
    for name, words in row.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise Failure(f"{where}: {name} must be a list of strings", exit_code=2)
    for field in row.get("fields", ()):
        if _path(field)[0] not in ("key", "value"):
            advice = "A field begins with key or value: value.email."
            raise Failure(f"{where}: {field!r} is not a field", advice, exit_code=2)
    if not row.get("fields") and not row.get("headers"):
        raise Failure(f"{where} masks nothing", "It needs fields or headers.", exit_code=2)
    words = {name: tuple(row[name]) for name in ("users", "topics", "fields", "headers") if name in row}
    return Rule(**words, exempt=tuple(row.get("except", ())))


def _path(field: str) -> tuple[str, tuple[str, ...]]:
    """Return the part of `value.cards[].number`, and its path: cards, [], number."""
    part, *steps = field.replace("[]", ".[]").split(".")
    return part, tuple(step for step in steps if step)


def _mask(content: Any, path: Sequence[str]) -> None:
    """Mask the fields at a path. Lists on the way are searched, also without [] in the path."""
    if isinstance(content, list):
        rest = path[1:] if path[0] == "[]" else path
        for index, each in enumerate(content):
            if rest:
                _mask(each, rest)
            else:
                content[index] = MASKED
    elif isinstance(content, dict):
        name = path[0]
        for key in content if name == "*" else [name] if name in content else []:
            if len(path) == 1:
                content[key] = MASKED
            else:
                _mask(content[key], path[1:])


def _matches(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
