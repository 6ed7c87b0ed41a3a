"""Access control lists as values: the numbers of Kafka's protocol, and rules, patterns and filters.

An ACL is a rule: it allows or denies a principal from a host one operation on the resources of a pattern. Patterns are
literal, with "*" for every resource of the type, or prefixed (KIP-290). The values are checked where requests are
decoded; here any number is possible, since a record of a later version may contain it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

WILDCARD = "*"
"""The host of each client, and the name of the literal pattern that each resource matches."""

WILDCARD_PRINCIPAL = "User:*"
"""The principal of a rule for all principals."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class _Known(IntEnum):
    """Numbers of the protocol; a number of a later version becomes UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003 - enum's signature
        return cls["UNKNOWN"]


class ResourceType(_Known):
    """The type of a resource; ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Known):
    """How the name of a pattern matches names of resources.

    Filters also have ANY, and MATCH for each pattern that a name matches, such as "*" and prefixes.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Known):
    """An operation on a resource; ANY is only for filters, and ALL in a rule stands for every other operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(_Known):
    """Whether a rule allows or denies; a rule that denies wins. ANY is only for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """The resources of a rule."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def matches(self, resource_type: int, name: str) -> bool:
        """Whether a resource matches."""
        if resource_type != self.resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.pattern_type == PatternType.LITERAL and self.name in (name, WILDCARD)


class Acl(NamedTuple):
    """One rule. Its text is as in the log of Kafka."""

    pattern: Pattern
    principal: str
    """`Type:name`; `User:*` for all principals."""
    host: str
    """An address, or "*"."""
    operation: Operation
    permission: PermissionType

    def __str__(self) -> str:
        """Return Kafka's text of a `StandardAcl`."""
        return (
            f"StandardAcl[resourceType={self.pattern.resource_type.name}, resourceName={self.pattern.name},"
            f" patternType={self.pattern.pattern_type.name}, principal={self.principal}, host={self.host},"
            f" operation={self.operation.name}, permissionType={self.permission.name}]"
        )


class AclFilter(NamedTuple):
    """Selects rules; None, or ANY, selects each value of a field.

    The pattern type MATCH selects each pattern that the resource `name` matches (KIP-290).
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: PermissionType = PermissionType.ANY

    @property
    def has_unknown_pattern(self) -> bool:
        """Whether a type of the pattern is UNKNOWN."""
        return self.resource_type == ResourceType.UNKNOWN or self.pattern_type == PatternType.UNKNOWN

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or the permission is UNKNOWN."""
        return self.operation == Operation.UNKNOWN or self.permission == PermissionType.UNKNOWN

    def matches(self, acl: Acl) -> bool:
        """Whether the filter selects the rule."""
        return (
            self._matches_pattern(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )

    def _matches_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type in (PatternType.ANY, pattern.pattern_type):
            return self.name == pattern.name
        return pattern.matches(pattern.resource_type, self.name)
