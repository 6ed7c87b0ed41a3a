"""The rights of users by subject: a file of rules in the format of Karapace's authorization file.

    {"permissions": [
      {"username": "ann", "operation": "Write", "resource": "Subject:orders-.*"},
      {"username": "bob", "operation": "Read", "resource": "Subject:.*"}
    ]}

`resource` is a regular expression that has to match the beginning of `Subject:NAME` or `Config:`. Write includes Read.
Users and passwords in the file are ignored: they are the broker's. The file is read again when it changes; a file that
cannot be read leaves the rules as they were.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.common.failure import Failure

logger = logging.getLogger(__name__)

_CHECK_EVERY_S: Final = 1.0
CONFIG: Final = "Config:"


class Operation(StrEnum):
    """An action on a resource."""

    READ = "Read"
    WRITE = "Write"


class Rule(NamedTuple):
    """A permission."""

    principal: str
    operation: Operation
    resource: re.Pattern[str]

    def allows(self, operation: Operation, resource: str) -> bool:
        """Whether the rule allows an operation."""
        is_included = operation is Operation.READ or self.operation is Operation.WRITE
        return is_included and self.resource.match(resource) is not None


def subject_resource(subject: str) -> str:
    """Return the resource of a subject."""
    return f"Subject:{subject}"


def parse_rules(text: str) -> list[Rule]:
    """Parse a file of rules. Raises ValueError with the position of a wrong rule."""
    document = json.loads(text)
    permissions = document.get("permissions") if isinstance(document, dict) else None
    if not isinstance(permissions, list):
        raise ValueError('the list "permissions" is missing')  # noqa: TRY004
    return [_rule(number, fields) for number, fields in enumerate(permissions)]


def _rule(number: int, fields: Any) -> Rule:
    names = ("username", "operation", "resource")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), str) for name in names):
        raise ValueError(f"permission {number} needs username, operation and resource as strings")
    user, operation, resource = (fields[name] for name in names)
    if operation not in set(Operation):
        raise ValueError(f"permission {number} has the operation {operation!r}; it must be Read or Write")
    try:
        pattern = re.compile(resource)
    except re.error as error:
        raise ValueError(f"permission {number} has the resource {resource!r}: {error}") from error
    return Rule(user if ":" in user else f"User:{user}", Operation(operation), pattern)


class Rights:
    """Decides what users may do. Without a file, every user may do everything."""

    def __init__(
        self, path: str | None, super_users: Iterable[str] = (), now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file; raises Failure."""
        self._path = None if path is None else Path(path)
        self._super_users = frozenset(super_users)
        self._now_s = now_s
        self._checked_s = now_s()
        self._version: object = None
        self._rules: dict[str, list[Rule]] = {}
        if self._path is not None:
            try:
                self._load(self._path)
            except (OSError, ValueError) as error:
                raise Failure(f"the rules in {path} cannot be used: {error}", exit_code=2) from error

    def is_unlimited(self, principal: str) -> bool:
        """Whether the user may do everything."""
        return self._path is None or principal in self._super_users

    def allows(self, principal: str, operation: Operation, resource: str) -> bool:
        """Whether the user may do this."""
        if self.is_unlimited(principal):
            return True
        self._follow()
        return any(rule.allows(operation, resource) for rule in self._rules.get(principal, ()))

    def _follow(self) -> None:
        now_s = self._now_s()
        if self._path is None or now_s - self._checked_s < _CHECK_EVERY_S:
            return
        self._checked_s = now_s
        try:
            if _version(self._path) != self._version:
                self._load(self._path)
                logger.info("Read the rules in %s again", self._path)
        except (OSError, ValueError) as error:
            logger.warning("The rules stay as they were: %s: %s", self._path, error)

    def _load(self, path: Path) -> None:
        self._version = _version(path)
        rules: dict[str, list[Rule]] = {}
        for rule in parse_rules(path.read_text("utf-8")):
            rules.setdefault(rule.principal, []).append(rule)
        self._rules = rules


def _version(path: Path) -> object:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
