"""ACLs, SCRAM credentials, delegation tokens and client quotas: the values of the admin client's calls about access."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from ottla.security import acl

AclResourceType: TypeAlias = acl.ResourceType
PatternType: TypeAlias = acl.PatternType
AclOperation: TypeAlias = acl.Operation
AclPermission: TypeAlias = acl.PermissionType

ANYTHING: Final = acl.WILDCARD


@dataclass(frozen=True, slots=True)
class AclResource:
    """The resource of an ACL: a name, "*" for all, or with PREFIXED the beginning of names."""

    type: AclResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    @classmethod
    def topic(cls, name: str, *, prefixed: bool = False) -> AclResource:
        """Return a topic, or all topics with this prefix."""
        return cls(AclResourceType.TOPIC, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def group(cls, group_id: str, *, prefixed: bool = False) -> AclResource:
        """Return a group, or all groups with this prefix."""
        return cls(AclResourceType.GROUP, group_id, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def transactional_id(cls, name: str, *, prefixed: bool = False) -> AclResource:
        """Return a transactional id, or all with this prefix."""
        return cls(AclResourceType.TRANSACTIONAL_ID, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)

    @classmethod
    def cluster(cls) -> AclResource:
        """Return the cluster itself."""
        return cls(AclResourceType.CLUSTER, acl.CLUSTER_NAME)


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL: `principal` ("User:alice", "User:*") may or may not do `operation` from `host` ("*": any host)."""

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
    """A filter of ACLs; every given field must match. None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def __str__(self) -> str:
        resource = f"{self.resource_type.name.lower()} {self.resource_name or ''}".strip()
        return f"ACLs of {self.permission.name} {self.principal or 'User:*'} {self.operation.name} {resource}"

    @classmethod
    def exactly(cls, rule: Acl) -> AclFilter:
        """Return the filter that matches only this ACL."""
        resource = rule.resource
        return cls(
            resource.type, resource.name, resource.pattern, rule.principal, rule.host, rule.operation, rule.permission
        )


# -- SCRAM -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's credential for a mechanism ("SCRAM-SHA-256", "SCRAM-SHA-512"), without its secret."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Set a user's password for a mechanism. Only the derived salted password is sent, not the password.

    `iterations` is 4096 to 16384; a `salt` of None is replaced by a random one.
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = 8192
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Delete a user's credential for a mechanism."""

    user: str
    mechanism: str


# -- delegation tokens -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token (KIP-48); its HMAC is a secret. Times are ms since the epoch.

    A client logs in with the token id as user name and `password` as password, with SCRAM and `tokenauth`:
    `{"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token.jaas_config}`.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    """When it expires, unless it is renewed."""
    max_timestamp_ms: int
    """When it expires although it is renewed."""

    @property
    def password(self) -> str:
        """The password of a log-in: a secret."""
        return b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """The setting `sasl.jaas.config` of clients that log in with the token: a secret."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return f'{module} required username="{self.token_id}" password="{self.password}" tokenauth="true";'


# -- quotas ----------------------------------------------------------------------------------------------------


class QuotaName(Enum):
    """In place of a name: DEFAULT stands for all without a quota of their own, ANY (in filters) for every name."""

    DEFAULT = "default"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The owner of a quota: a user, a client id, both together, or an address. None: the field does not apply."""

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
