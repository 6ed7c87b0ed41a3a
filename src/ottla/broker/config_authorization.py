"""The rights on settings: of a topic or group on the resource itself, of all other resources on the cluster.

The mirror of a topic and its state need the right on the cluster, too: they make the topic read-only, or open it. A
mirror that copies access rules needs the right of CreateAcls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.authorization import allowed
from ottla.broker.authorization_table import ERRORS, MESSAGES
from ottla.common.errors import KafkaError
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, MIRROR, TOPIC
from ottla.metadata.mirrors import COPY_SETTING, MIRROR_SETTING, STATE_SETTING
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasSecurity

_RESOURCE_TYPES = {
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
    MIRROR: ResourceType.CLUSTER,
}
_OF_MIRRORS = (MIRROR_SETTING, STATE_SETTING)


class Resource(Protocol):
    """A resource of a request for settings."""

    resource_type: int
    resource_name: str


def check_authorized(broker: HasSecurity, context: RequestContext, operation: Operation, resource: Resource) -> None:
    """Raise the error of the resource if the client may not perform the operation; unknown types have another error."""
    resource_type = _RESOURCE_TYPES.get(resource.resource_type)
    if resource_type is None:
        return
    name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else resource.resource_name
    if not allowed(broker, context, operation, resource_type, name):
        error = ERRORS[resource_type]
        raise KafkaError(error, MESSAGES[error])


def check_copied_rules(
    broker: HasSecurity, context: RequestContext, given: Mapping[str, str | None], present: Mapping[str, str]
) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED if the client may not change a mirror that copies access rules.

    It could name another source, with rules that the client has created there.
    """
    wanted = {**present, **given}.get(COPY_SETTING)
    if wanted and not allowed(broker, context, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ERRORS[ResourceType.CLUSTER]
        raise KafkaError(error, MESSAGES[error])


def check_mirror_change(
    broker: HasSecurity, context: RequestContext, given: Mapping[str, str | None], replaced: Mapping[str, str] | None
) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED if the client may not change the mirror of a topic by the `given` settings.

    `replaced` are its present settings if the given ones replace them all, else None.
    """
    if replaced is None:
        is_changed = not given.keys().isdisjoint(_OF_MIRRORS)
    else:
        is_changed = any(given.get(name) != replaced.get(name) for name in _OF_MIRRORS)
    if is_changed and not allowed(broker, context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        error = ERRORS[ResourceType.CLUSTER]
        raise KafkaError(error, MESSAGES[error])
