"""AlterConfigs (33) replaces all dynamic settings of resources; IncrementalAlterConfigs is the better way. KIP-133."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    """The settings that are to remain."""

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Struct):
    """An element of `AlterConfigsRequest.resources`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Struct):
    """An element of `AlterConfigsResource.configs`."""

    name: str = ""
    value: str | None = ""


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    """The outcome per resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Struct):
    """An element of `AlterConfigsResponse.responses`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
