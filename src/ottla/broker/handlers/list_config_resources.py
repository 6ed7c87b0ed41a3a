"""ListConfigResources (74), versions 0-1: the resources that have a configuration.

KIP-714 (version 0: only client metrics), KIP-1142.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, MIRROR, TOPIC
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.metadata.image import MetadataImage

ALL_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(
    broker: HasMetadata, context: RequestContext, request: ListConfigResourcesRequest
) -> Slices[ListConfigResourcesResponse]:
    """List the resources of the requested kinds, or of all kinds if none is given."""
    kinds = [CLIENT_METRICS] if context.api_version == 0 else list(dict.fromkeys(request.resource_types)) or ALL_TYPES
    # Mirrors are listed only for clients that name their type: other clients do not know it.
    if not set(kinds) <= {*ALL_TYPES, MIRROR}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = broker.metadata.image
    resources = []
    for kind in kinds:
        for name in _names(image, kind):
            resources.append(ConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=resources)


def _names(image: MetadataImage, kind: int) -> list[str]:
    if kind == TOPIC:
        return list(image.topics_by_name)
    if kind in (BROKER, BROKER_LOGGER):
        return [str(broker_id) for broker_id in image.brokers]
    return [name for configured, name in image.configs if configured == kind]
