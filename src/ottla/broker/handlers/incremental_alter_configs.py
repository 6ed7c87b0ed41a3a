"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to, subtract from single settings. KIP-339.

Log levels (BROKER_LOGGER) change at once and are lost at the next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import loggers
from ottla.broker.authorization import allowed_on_cluster
from ottla.broker.authorization_table import MESSAGES
from ottla.broker.config_alteration import Alteration, alter, check_directories
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller.configs import APPEND, SET
from ottla.metadata.image import BROKER_LOGGER
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.security.acl import Operation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConfigPorts


def handle(
    broker: ConfigPorts, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Slices[IncrementalAlterConfigsResponse]:
    """Change only the named settings."""

    def is_done_here(resource: AlterConfigsResource, node_id: int | None) -> bool:
        if resource.resource_type != BROKER_LOGGER:
            if node_id is not None:
                added = [config for config in resource.configs if config.config_operation in (SET, APPEND)]
                check_directories(broker.settings.static, resource, added)
            return False
        _check_logger(broker, context, on_controller=node_id is None)
        changes = [loggers.Change(config.name, config.config_operation, config.value) for config in resource.configs]
        loggers.alter(broker.node_id, resource.resource_name, changes, apply=not request.validate_only)
        return True

    return alter(
        broker,
        context,
        Alteration(
            request,
            IncrementalAlterConfigsResponse(responses=[]),
            AlterConfigsResourceResponse,
            is_done_here,
            lambda controller, is_direct: controller.incremental_alter_configs(request, is_direct=is_direct),
        ),
    )


def _check_logger(broker: ConfigPorts, context: RequestContext, *, on_controller: bool) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED unless the client may change log levels; only controllers give a message."""
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    operation = Operation.CLUSTER_ACTION if on_controller else Operation.ALTER_CONFIGS
    if not allowed_on_cluster(broker, context, operation):
        raise KafkaError(error, MESSAGES[error] if on_controller else None)
