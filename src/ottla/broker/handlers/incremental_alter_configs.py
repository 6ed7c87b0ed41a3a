"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to, subtract from single settings. KIP-339.

Each resource changes on its own, completely or not at all. Log levels (BROKER_LOGGER) change at once and are lost at
the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import loggers
from ottla.broker.config_alteration import check_directories, is_direct, separate_resources
from ottla.broker.forwarding import decide_or_forward
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.controller.configs import APPEND, SET
from ottla.metadata.image import BROKER_LOGGER
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConfigPorts


def handle(
    broker: ConfigPorts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Slices[IncrementalAlterConfigsResponse]:
    """Change only the named settings."""
    node_id = None if broker.is_controller_listener(context.listener) else broker.node_id

    def is_done_here(resource: AlterConfigsResource) -> bool:
        if resource.resource_type != BROKER_LOGGER:
            if node_id is not None:
                added = [config for config in resource.configs if config.config_operation in (SET, APPEND)]
                check_directories(broker.static_config, resource, added)
            return False
        changes = [loggers.Change(config.name, config.config_operation, config.value) for config in resource.configs]
        loggers.alter(broker.node_id, resource.resource_name, changes, apply=not request.validate_only)
        return True

    request.resources, answered = yield from separate_resources(node_id, request.resources, is_done_here, _answer)
    direct = is_direct(node_id, context.connection)
    try:
        decided = decide_or_forward(
            broker,
            context,
            request,
            lambda controller: controller.incremental_alter_configs(request, is_direct=direct),
        )
        response: IncrementalAlterConfigsResponse = yield from result_of(decided)
    except KafkaError as error:
        response = IncrementalAlterConfigsResponse(responses=[])
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
