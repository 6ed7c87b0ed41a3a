"""Who may do what, who may log in, who may use how much: the values of the admin client's calls about access."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, Self


class _Known(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003 - enum's signature
        return cls["UNKNOWN"]


class AclResourceType(_Known):
    """What an ACL is about; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Known):
    """How a name is meant. For filters: ANY, and MATCH for every ACL that applies to a name ("*" and prefixes too)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Known):
    """What is allowed or denied; ANY is for filters, ALL is all of the others."""

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


class AclPermission(_Known):
    """Which of the two; a DENY wins over every ALLOW. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


ANYTHING: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class AclResource:
    """What an ACL is about: by name, by "*" for all, or with PREFIXED by how the name begins."""

    type: AclResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    @classmethod
    def topic(cls, name: str, *, prefixed: bool = False) -> AclResource:
        """A topic, or all whose names begin so."""
        return cls(AclResourceType.TOPIC, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def group(cls, group_id: str, *, prefixed: bool = False) -> AclResource:
        """A group, or all whose ids begin so."""
        return cls(AclResourceType.GROUP, group_id, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def transactional_id(cls, name: str, *, prefixed: bool = False) -> AclResource:
        """A transactional id, or all that begin so."""
        return cls(AclResourceType.TRANSACTIONAL_ID, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def cluster(cls) -> AclResource:
        """The cluster as a whole."""
        return cls(AclResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule: `principal` ("User:alice", "User:*") may, or may not, do `operation` from `host` ("*" for anywhere)."""

    resource: AclResource
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANYTHING

    def __str__(self) -> str:
        what = f"{self.resource.type.name.lower()} {self.resource.name}"
        return f"{self.permission.name} {self.principal} {self.operation.name} {what}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Rules that match all that is given; None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def exactly(cls, acl: Acl) -> AclFilter:
        """What matches this one rule."""
        resource = acl.resource
        return cls(
            resource.type, resource.name, resource.pattern, acl.principal, acl.host, acl.operation, acl.permission
        )


# -- SCRAM -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """That a user may log in by a mechanism ("SCRAM-SHA-256", "SCRAM-SHA-512"); the secret stays with the brokers."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Give a user a password for a mechanism. It does not travel: what is derived from it does.

    `iterations` is 4096 to 16384; `salt` is drawn if None.
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = 8192
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user may not log in by a mechanism any more."""

    user: str
    mechanism: str


# -- quotas ----------------------------------------------------------------------------------------------------


class QuotaName(Enum):
    """In place of a name: the DEFAULT of all without a quota of their own; for questions, ANY name (or the default)."""

    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Who has a quota: a user, a client id, both together, or an address. None: the quota is not about that."""

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
