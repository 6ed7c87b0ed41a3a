"""Decides whether a principal may perform an operation on a resource, with the rules of Kafka's StandardAuthorizer.

    authorizer = StandardAuthorizer(Rules(super_users=frozenset({"User:admin"})))
    authorizer.add(acl); authorizer.remove(acl)
    authorizer.finish_loading()
    authorizer.authorize("User:alice", "10.0.0.7", Operation.READ, ResourceType.TOPIC, "orders")

The order of a decision (KIP-11, KIP-290, KIP-801):

1. A super user may do everything, also before the rules are loaded. Before that, everything else is denied.
2. A rule that denies the operation, or ALL, wins over all rules that allow it.
3. A rule that allows the operation, or ALL, decides next. READ, WRITE, DELETE and ALTER imply DESCRIBE, and
   ALTER_CONFIGS implies DESCRIBE_CONFIGS, only in rules that allow.
4. A resource that matches the pattern of any rule is denied. Any other resource has the default, which is to deny
   unless `allow.everyone.if.no.acl.found` is set.

Cost: rules are indexed by pattern, then by principal and host. A decision looks up a literal pattern, "*", and one
prefix for each length that some prefix has. Decisions are cached until a rule changes; the cache has an upper bound.
What the clients of connections may do with topics is also cached for each connection, see `grants`.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    Pattern,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.security.grants import Granted, GrantTable

if TYPE_CHECKING:
    from ottla.common.ids import Uuid

__all__ = ["CLUSTER_NAME", "Authorizer", "Decision", "Rules", "StandardAuthorizer"]

MAX_CACHED_DECISIONS = 1 << 16
# A cached decision retains the name. Names of topics are shorter; other names may have 32,767 characters.
MAX_CACHED_NAME = 256

_IMPLIES: dict[int, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""The operations of rules that allow an operation, besides ALL; missing: only the operation itself."""


class Decision(NamedTuple):
    """Whether an operation is allowed, and why: by `acl`, or by a rule without an ACL. Its text is Kafka's."""

    is_allowed: bool
    reason: str = ""
    acl: Acl | None = None

    def __str__(self) -> str:
        """Return the rule as Kafka's audit log shows it."""
        return self.reason if self.acl is None else f"MatchingAcl(acl={self.acl})"


SUPER_USER = Decision(is_allowed=True, reason="SuperUser")
DEFAULT_ALLOW = Decision(is_allowed=True, reason="DefaultAllow")
DEFAULT_DENY = Decision(is_allowed=False, reason="DefaultDeny")
NOT_READY = Decision(is_allowed=False, reason="AuthorizerNotReady")


class Authorizer(Protocol):
    """The interface of authorizers. All methods are called on the event loop and must not block."""

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Decide one operation on one resource, and name the rule."""
        ...

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether the principal may perform the operation on the resource."""
        ...

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the principal may perform the operation on at least one resource of the type."""
        ...

    def remember(self, granted: Granted, topic: str | Uuid) -> None:
        """Add a topic, which `decide` has just allowed, to the grants of a connection if they can be taken back."""
        ...


class Rules(NamedTuple):
    """The settings of an authorizer."""

    super_users: frozenset[str] = frozenset()
    allow_without_acl: bool = False
    """`allow.everyone.if.no.acl.found`."""


_Holder = tuple[str, str]
"""The principal and the host of rules."""
_Entries = dict[_Holder, dict[tuple[int, int], Acl]]
"""The rules of one pattern: by holder, then by permission and operation."""


class _Index:
    """The rules of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.by_holder: dict[_Holder, set[Acl]] = {}
        self._prefixes_of_length: Counter[int] = Counter()
        self.lengths: list[int] = []
        """The lengths of the prefixes, ascending."""

    def add(self, acl: Acl) -> None:
        name, holder = acl.pattern.name, (acl.principal, acl.host)
        is_prefix = _is_prefix(acl)
        patterns = self.prefixed if is_prefix else self.literal
        if is_prefix and name not in patterns:
            self._count_length(len(name), 1)
        by_holder = patterns.setdefault(name, {})
        by_holder.setdefault(holder, {})[acl.permission, acl.operation] = acl
        self.by_holder.setdefault(holder, set()).add(acl)

    def remove(self, acl: Acl) -> None:
        name, holder = acl.pattern.name, (acl.principal, acl.host)
        is_prefix = _is_prefix(acl)
        patterns = self.prefixed if is_prefix else self.literal
        by_holder = patterns[name]
        entries = by_holder[holder]
        del entries[acl.permission, acl.operation]
        if not entries:
            del by_holder[holder]
        if not by_holder:
            del patterns[name]
            if is_prefix:
                self._count_length(len(name), -1)
        held = self.by_holder[holder]
        held.discard(acl)
        if not held:
            del self.by_holder[holder]

    def _count_length(self, length: int, change: int) -> None:
        self._prefixes_of_length[length] += change
        self.lengths = sorted(each for each, count in self._prefixes_of_length.items() if count)

    def matching(self, name: str) -> list[_Entries]:
        """The rules of each pattern that the name matches: first its own, then longer prefixes first, "*" last."""
        found = []
        own = self.literal.get(name)
        if own is not None:
            found.append(own)
        size = len(name)
        for length in reversed(self.lengths):
            if length <= size:
                by_prefix = self.prefixed.get(name[:length])
                if by_prefix is not None:
                    found.append(by_prefix)
        if name != WILDCARD:
            everything = self.literal.get(WILDCARD)
            if everything is not None:
                found.append(everything)
        return found


class StandardAuthorizer:
    """Decides by super users and by the rules that were added."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.is_loaded = False
        """Whether the rules are complete. Until then only super users are allowed anything."""
        self._default = DEFAULT_ALLOW if rules.allow_without_acl else DEFAULT_DENY
        self._acls: set[Acl] = set()
        self._indices: dict[int, _Index] = {}
        self._decisions: dict[tuple[str, str, int, int, str], Decision] = {}
        self._by_type: dict[tuple[str, str, int, int], bool] = {}
        self._grants = GrantTable()
        # A subclass may decide by something else than rules, and differently each time.
        self._remembers = type(self) is StandardAuthorizer

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self._acls)

    # -- changes -----------------------------------------------------------------------------------------------

    def add(self, acl: Acl) -> None:
        """Add a rule; cached decisions are dropped."""
        if acl not in self._acls:
            self._acls.add(acl)
            self._indices.setdefault(acl.pattern.resource_type, _Index()).add(acl)
            self._forget()

    def remove(self, acl: Acl) -> None:
        """Remove a rule; cached decisions are dropped."""
        if acl in self._acls:
            self._acls.remove(acl)
            self._indices[acl.pattern.resource_type].remove(acl)
            self._forget()

    def finish_loading(self) -> None:
        """Decide by the rules from now on."""
        self.is_loaded = True

    def _forget(self) -> None:
        self._decisions.clear()
        self._by_type.clear()
        self._grants.clear()

    # -- decisions ---------------------------------------------------------------------------------------------

    def authorize(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether the principal may perform the operation on the resource."""
        return self.decide(principal, host, operation, resource_type, name).is_allowed

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        """Decide one operation on one resource, and name the rule."""
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is not None:
            return decision
        if principal in self.rules.super_users:
            return SUPER_USER
        if not self.is_loaded:
            return NOT_READY
        decision = self._decide(principal, host, operation, resource_type, name)
        if len(name) <= MAX_CACHED_NAME:
            if len(self._decisions) >= MAX_CACHED_DECISIONS:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def remember(self, granted: Granted, topic: str | Uuid) -> None:
        """Add a topic, which `decide` has just allowed, to the grants of a connection, until a rule changes."""
        if self._remembers and len(topic) <= MAX_CACHED_NAME:
            self._grants.add(granted, topic)

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Decision:
        index = self._indices.get(resource_type)
        matching = index.matching(name) if index is not None else []
        if not matching:
            return self._default
        holders = _holders(principal, host)
        allowing = [(PermissionType.ALLOW, each) for each in _IMPLIES.get(operation, (operation,))]
        allowing.append((PermissionType.ALLOW, Operation.ALL))
        denying = ((PermissionType.DENY, operation), (PermissionType.DENY, Operation.ALL))
        allowed_by: Acl | None = None
        for entries in matching:
            for holder in holders:
                rules = entries.get(holder)
                if rules is None:
                    continue
                for key in denying:
                    if key in rules:
                        return Decision(is_allowed=False, acl=rules[key])
                if allowed_by is None:
                    allowed_by = next((rules[key] for key in allowing if key in rules), None)
        return DEFAULT_DENY if allowed_by is None else Decision(is_allowed=True, acl=allowed_by)

    def authorize_by_resource_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether the principal may perform the operation on at least one resource of the type.

        As in Kafka, only rules for the operation itself or for ALL count; no operation implies another one.
        """
        if principal in self.rules.super_users:
            return True
        if not self.is_loaded:
            return False
        key = (principal, host, operation, resource_type)
        known = self._by_type.get(key)
        if known is None:
            if len(self._by_type) >= MAX_CACHED_DECISIONS:
                self._by_type.clear()
            known = self._by_type[key] = self._allows_some(principal, host, operation, resource_type)
        return known

    def _allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        # Kafka decides first on a resource of this name, and with it about resources without rules.
        if self.authorize(principal, host, operation, resource_type, "hardcode"):
            return True
        index = self._indices.get(resource_type)
        if index is None:
            return False
        denied: set[Pattern] = set()
        allowed: set[Pattern] = set()
        for holder in _holders(principal, host):
            for acl in index.by_holder.get(holder, ()):
                if acl.operation in (operation, Operation.ALL):
                    (allowed if acl.permission == PermissionType.ALLOW else denied).add(acl.pattern)
        everything = Pattern(ResourceType(resource_type), WILDCARD)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        prefixes = {pattern.name for pattern in denied if pattern.pattern_type == PatternType.PREFIXED}
        return any(pattern not in denied and not _has_prefix(pattern.name, prefixes) for pattern in allowed)


def _holders(principal: str, host: str) -> tuple[_Holder, ...]:
    own = (principal, host), (principal, WILDCARD)
    holders = *own, (WILDCARD_PRINCIPAL, host), (WILDCARD_PRINCIPAL, WILDCARD)
    if ":" in host:
        written = _as_in_java(host)
        return *holders, (principal, written), (WILDCARD_PRINCIPAL, written)
    return holders


def _as_in_java(host: str) -> str:
    """An IPv6 address as Java writes it, `0:0:0:0:0:0:0:1`: rules for stock Kafka have this form."""
    base, *zone = host.partition("%")
    try:
        address = IPv6Address(base)
    except ValueError:
        return host
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":")) + "".join(zone)


def _is_prefix(acl: Acl) -> bool:
    """Whether the name is a prefix. A pattern of a later version must not become the wildcard "*"."""
    return acl.pattern.pattern_type != PatternType.LITERAL


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))
