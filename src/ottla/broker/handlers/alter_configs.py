"""AlterConfigs (33), versions 0-2: replace all settings of topics, brokers, groups or client metrics. KIP-133.

Each resource changes on its own, completely or not at all. Log levels (BROKER_LOGGER) change by IncrementalAlterConfigs
only, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config_alteration import check_directories, is_direct, separate_resources
from ottla.broker.forwarding import decide_or_forward
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
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
    node_id = None if broker.is_controller_listener(context.listener) else broker.node_id

    def is_done_here(resource: AlterConfigsResource) -> bool:
        if resource.resource_type == BROKER_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {BROKER_LOGGER}")
        if node_id is not None:
            check_directories(broker.static_config, resource, resource.configs)
        return False

    request.resources, answered = yield from separate_resources(node_id, request.resources, is_done_here, _answer)
    direct = is_direct(node_id, context.connection)
    try:
        decided = decide_or_forward(
            broker, context, request, lambda controller: controller.alter_configs(request, is_direct=direct)
        )
        response: AlterConfigsResponse = yield from result_of(decided)
    except KafkaError as error:
        response = AlterConfigsResponse(responses=[])
        for resource in request.resources:
            response.responses.append(_answer(resource, error))
            yield
    response.responses += answered
    return response


def _answer(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
