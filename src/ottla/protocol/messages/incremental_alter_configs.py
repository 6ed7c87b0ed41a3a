"""IncrementalAlterConfigs (44) changes single dynamic settings. KIP-339."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    """Operations on settings: 0 set, 1 delete, 2 append, 3 subtract."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Struct):
    """An element of `IncrementalAlterConfigsRequest.resources`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Struct):
    """An element of `AlterConfigsResource.configs`."""

    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    """The outcome per resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Struct):
    """An element of `IncrementalAlterConfigsResponse.responses`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
