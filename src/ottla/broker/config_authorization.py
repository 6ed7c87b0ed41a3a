"""The rights on settings: of a topic or group on the resource itself, of all other resources on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.authorization import allowed
from ottla.broker.authorization_table import ERRORS, MESSAGES
from ottla.common.errors import KafkaError
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, MIRROR, TOPIC
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
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
