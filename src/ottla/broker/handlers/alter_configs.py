"""AlterConfigs (33), versions 0-2: replace all settings of topics, brokers, groups or client metrics. KIP-133.

Log levels (BROKER_LOGGER) change by IncrementalAlterConfigs only, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config_alteration import Alteration, alter, check_directories
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.metadata.image import BROKER_LOGGER
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConfigPorts


def handle(broker: ConfigPorts, context: RequestContext, request: AlterConfigsRequest) -> Slices[AlterConfigsResponse]:
    """Replace the settings; a setting that a resource does not name returns to its default."""

    def is_done_here(resource: AlterConfigsResource, node_id: int | None) -> bool:
        if resource.resource_type == BROKER_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {BROKER_LOGGER}")
        if node_id is not None:
            check_directories(broker.settings.static, resource, resource.configs)
        return False

    return alter(
        broker,
        context,
        Alteration(
            request,
            AlterConfigsResponse(responses=[]),
            AlterConfigsResourceResponse,
            is_done_here,
            lambda controller, is_direct: controller.alter_configs(request, is_direct=is_direct),
        ),
    )
