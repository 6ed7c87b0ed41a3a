"""Access control lists of commands: resources in words, the rules of producers and consumers, and which rule decides.

A resource is `topic:NAME`, `group:NAME`, `transactional-id:NAME`, `delegation-token:ID`, `user:Type:name` or `cluster`.
`topic:*` is every topic, and `topic:orders-*` every topic whose name begins with `orders-`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.clients.admin.access_model import Acl, AclOperation, AclPermission, AclResource, AclResourceType, PatternType
from ottla.security import acl as core
from ottla.security.authorizer import Rules, StandardAuthorizer

_TYPES = {each.name.lower().replace("_", "-"): each for each in AclResourceType if each > AclResourceType.ANY}
_OPERATIONS = {each.name.lower().replace("_", "-"): each for each in AclOperation if each > AclOperation.ANY}
_Op, _Type = AclOperation, AclResourceType
_CONFIGS = {_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}
_SUPPORTED: dict[AclResourceType, set[AclOperation]] = {
    _Type.TOPIC: {_Op.READ, _Op.WRITE, _Op.CREATE, _Op.DELETE, _Op.ALTER, _Op.DESCRIBE, *_CONFIGS},
    _Type.GROUP: {_Op.READ, _Op.DELETE, _Op.DESCRIBE, *_CONFIGS},
    _Type.CLUSTER: {_Op.CREATE, _Op.CLUSTER_ACTION, _Op.ALTER, _Op.DESCRIBE, _Op.IDEMPOTENT_WRITE, *_CONFIGS},
    _Type.TRANSACTIONAL_ID: {_Op.DESCRIBE, _Op.WRITE, _Op.TWO_PHASE_COMMIT},
    _Type.DELEGATION_TOKEN: {_Op.DESCRIBE},
    _Type.USER: {_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS},
}
"""The operations that requests need on each type; others in a rule have no effect."""


def resource_of(text: str) -> AclResource:
    """Parse a resource; raises ValueError."""
    word, separator, name = text.partition(":")
    kind = _TYPES.get(word.lower())
    if kind is None:
        raise ValueError(f"{text!r} is not a resource: write TYPE:NAME, where TYPE is {', '.join(_TYPES)}")
    if kind is AclResourceType.CLUSTER:
        if name not in ("", core.CLUSTER_NAME):
            raise ValueError(f"{text!r}: the cluster has no other name; write cluster")
        return AclResource.cluster()
    if not separator or not name:
        raise ValueError(f"{text!r} has no name: write {word}:NAME, or {word}:* for all")
    if name.endswith("*") and name != core.WILDCARD:
        return AclResource(kind, name[:-1], PatternType.PREFIXED)
    return AclResource(kind, name)


def resource_text(resource: AclResource) -> str:
    """The words of a resource."""
    kind = word(resource.type)
    if resource.type is AclResourceType.CLUSTER:
        return kind
    return f"{kind}:{resource.name}" + ("*" if resource.pattern is PatternType.PREFIXED else "")


def word(member: AclResourceType | AclOperation | AclPermission) -> str:
    """The word for a type, an operation or a permission."""
    return member.name.lower().replace("_", "-")


def row_of(rule: Acl) -> dict[str, str]:
    """Return a rule in words."""
    return {
        "principal": rule.principal,
        "permission": word(rule.permission),
        "operation": word(rule.operation),
        "resource": resource_text(rule.resource),
        "host": rule.host,
    }


def principal_of(user: str) -> str:
    """`User:bob` for bob; other types of principals are written out. Raises ValueError."""
    principal = user if ":" in user else f"User:{user}"
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise ValueError(f"{user!r} is not a user: write a name, or Type:name")
    return principal


def operations_of(text: str, resource: AclResource) -> list[AclOperation]:
    """Parse operations, separated by commas. Raises ValueError also for those that no request needs there."""
    found = []
    for name in filter(None, map(str.strip, text.split(","))):
        operation = _OPERATIONS.get(name.lower().replace("_", "-"))
        if operation is None:
            raise ValueError(f"{name!r} is not an operation: it must be one of {', '.join(_OPERATIONS)}")
        supported = _SUPPORTED[resource.type]
        if operation is not AclOperation.ALL and operation not in supported:
            known = ", ".join(word(each) for each in sorted(supported))
            raise ValueError(f"no request needs {name} on a {word(resource.type)}: it must be all or one of {known}")
        found.append(operation)
    if not found:
        raise ValueError("no operation is given")
    return list(dict.fromkeys(found))


def producer_operations(resource: AclResource) -> list[AclOperation]:
    """The operations of a producer, as `kafka-acls --producer` gives them. Raises ValueError."""
    if resource.type is AclResourceType.TOPIC:
        return [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE]
    if resource.type is AclResourceType.TRANSACTIONAL_ID:
        return [AclOperation.WRITE, AclOperation.DESCRIBE]
    if resource.type is AclResourceType.CLUSTER:
        return [AclOperation.IDEMPOTENT_WRITE]
    raise ValueError(f"a producer uses topics and transactional ids, not {resource_text(resource)}")


def consumer_operations(resource: AclResource) -> list[AclOperation]:
    """The operations of a consumer, as `kafka-acls --consumer` gives them. Raises ValueError."""
    if resource.type is AclResourceType.TOPIC:
        return [AclOperation.READ, AclOperation.DESCRIBE]
    if resource.type is AclResourceType.GROUP:
        return [AclOperation.READ]
    raise ValueError(f"a consumer uses topics and groups, not {resource_text(resource)}")


def missing_for_consumer(resources: Sequence[AclResource]) -> str | None:
    """The type that a consumer needs besides these resources."""
    kinds = {resource.type for resource in resources}
    needed = (AclResourceType.TOPIC, AclResourceType.GROUP)
    return next((word(each) for each in needed if each not in kinds), None)


def decide(
    rules: Iterable[Acl], principal: str, host: str, operation: AclOperation, resource: AclResource
) -> tuple[bool, Acl | None]:
    """Whether the operation is allowed, and by which rule; None if no rule is for it.

    Decides as a node that has no super users and denies resources without rules.
    """
    authorizer = StandardAuthorizer(Rules())
    known: dict[core.Acl, Acl] = {}
    for rule in rules:
        pattern = core.Pattern(rule.resource.type, rule.resource.name, rule.resource.pattern)
        each = core.Acl(pattern, rule.principal, rule.host, rule.operation, rule.permission)
        known[each] = rule
        authorizer.add(each)
    authorizer.finish_loading()
    decision = authorizer.decide(principal, host, operation, resource.type, resource.name)
    return decision.is_allowed, None if decision.acl is None else known[decision.acl]
