"""Asks the node's authorizer on behalf of a request, and writes the audit log. KIP-11, KIP-50.

    if not allowed(broker, context, Operation.READ, ResourceType.TOPIC, name): ...     # TOPIC_AUTHORIZATION_FAILED

Without an authorizer everything is allowed, at the cost of one comparison. The audit log is the logger
`kafka.authorizer.logger` with Kafka's texts: denied operations at INFO, allowed ones at DEBUG. Operations that the
client did not ask for, such as the filter of a listing, are only logged at TRACE.

Produce and Fetch ask `grants_of` first, which remembers the rights of a connection, and `denied_topics` about the other
topics. No request is served with a right that was revoked before: a rule that changes empties what is remembered, and
the principal is compared each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.broker.loggers import AUDIT, TRACE
from ottla.protocol.registry import API
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.security.grants import Grants

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AdminPorts, HasSecurity
    from ottla.common.ids import Uuid
    from ottla.security.authorizer import Authorizer, Decision
    from ottla.security.grants import Granted

audit_logger = logging.getLogger(AUDIT)
_DEBUG, _INFO = logging.DEBUG, logging.INFO
# The attributes of an enumeration are slow.
_TOPIC: Final = ResourceType.TOPIC
# The known results of `isEnabledFor`, by level; `logging` empties it when a level changes.
_is_enabled: dict[int, bool] = getattr(audit_logger, "_cache", {})
# The key in `Connection.state` of the client's grants.
_GRANTS: Final = "grants"

Topics: TypeAlias = "frozenset[str | Uuid]"
"""Topics, by name or id."""
NO_TOPICS: Topics = frozenset()


class Audit(NamedTuple):
    """How the audit log reports a decision: KIP-50's `Action`."""

    references: int = 1
    """How often the request names the resource."""
    log_allowed: bool = True
    log_denied: bool = True


REQUESTED = Audit()
"""The client asked for the operation."""
FILTERED = Audit(log_denied=False)
"""The client asked for everything that it may see: a denied resource is omitted."""
SILENT = Audit(log_allowed=False, log_denied=False)
"""The client asked which operations are allowed."""


def allowed(
    broker: HasSecurity,
    context: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    audit: Audit = REQUESTED,
) -> bool:
    """Whether the client of the request may perform the operation on the resource."""
    authorizer = broker.security.authorizer
    if authorizer is None:
        return True
    return _decide(authorizer, context, operation, resource_type, name, audit)


def allowed_on_cluster(
    broker: HasSecurity, context: RequestContext, operation: Operation, audit: Audit = REQUESTED
) -> bool:
    """Whether the client of the request may perform the operation on the cluster."""
    authorizer = broker.security.authorizer
    if authorizer is None:
        return True
    return _decide(authorizer, context, operation, ResourceType.CLUSTER, CLUSTER_NAME, audit)


def allowed_names(
    broker: HasSecurity,
    context: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    audit: Audit = REQUESTED,
) -> set[str]:
    """The names of the resources on which the client may perform the operation; a repeated name is decided once."""
    authorizer = broker.security.authorizer
    if authorizer is None:
        return set(names)
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return {
        name
        for name, count in counts.items()
        if _decide(authorizer, context, operation, resource_type, name, audit._replace(references=count))
    }


def grants_of(context: RequestContext) -> Grants | None:
    """The topics that the client was allowed before; None while the audit log reports allowed operations."""
    connection = context.connection
    # Each request comes here: subscripts cost half of calls.
    try:
        grants: Grants = connection.state[_GRANTS]  # type: ignore[assignment]
        is_reported = _is_enabled[_DEBUG]
    except KeyError:  # the first request of the connection, or since a level changed
        grants = connection.state.setdefault(_GRANTS, Grants(connection.principal))  # type: ignore[assignment]
        is_reported = audit_logger.isEnabledFor(_DEBUG)
    if grants.principal is not connection.principal:
        grants = connection.state[_GRANTS] = Grants(connection.principal)
    return None if is_reported else grants


def denied_topics(
    broker: AdminPorts,
    context: RequestContext,
    operation: Operation,
    topics: Iterable[str | Uuid],
    granted: Granted | None,
) -> Topics:
    """The topics, by name or id, on which the client may not perform the operation; unknown ids have another error.

    The other topics are added to `granted`, the topics of `grants_of` for the operation.
    """
    authorizer = broker.security.authorizer
    if authorizer is None:
        return NO_TOPICS
    denied: list[str | Uuid] = []
    by_id = broker.metadata.image.topics_by_id
    for topic in topics:
        name = topic
        if not isinstance(name, str):
            found = by_id.get(name)
            if found is None:
                continue
            name = found.name
        if not _decide(authorizer, context, operation, _TOPIC, name, REQUESTED):
            denied.append(topic)
        elif granted is not None:
            authorizer.remember(granted, topic)
    return frozenset(denied) if denied else NO_TOPICS


def allowed_by_type(
    broker: HasSecurity, context: RequestContext, operation: Operation, resource_type: ResourceType
) -> bool:
    """Whether the client may perform the operation on at least one resource of the type. KIP-679."""
    authorizer = broker.security.authorizer
    return authorizer is None or authorizer.authorize_by_resource_type(
        context.principal, context.client_host, operation, resource_type
    )


def _decide(
    authorizer: Authorizer,
    context: RequestContext,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    audit: Audit,
) -> bool:
    connection = context.connection
    decision = authorizer.decide(connection.principal, connection.remote_host, operation, resource_type, name)
    is_allowed = decision.is_allowed
    is_reported = audit.log_allowed if is_allowed else audit.log_denied
    level = (_DEBUG if is_allowed else _INFO) if is_reported else TRACE
    if audit_logger.isEnabledFor(level):
        _log(level, context, (operation, resource_type, name), decision, audit.references)
    return is_allowed


def _log(
    level: int, context: RequestContext, action: tuple[Operation, ResourceType, str], decision: Decision, count: int
) -> None:
    operation, resource_type, name = action
    audit_logger.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s"
        " with resourceRefCount = %d based on rule %s",
        context.principal,
        "Allowed" if decision.is_allowed else "Denied",
        operation.name,
        context.client_host,
        _TYPE_NAMES[resource_type],
        name,
        API[context.api_key].name,
        count,
        decision,
    )


_TYPE_NAMES = {each: "".join(part.capitalize() for part in each.name.split("_")) for each in ResourceType}
"""The names of resource types in Kafka's audit log, such as TransactionalId."""
