"""ListConfigResources (74) lists resources that have settings. KIP-714, KIP-1142."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, since


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    """Asks for kinds of resources; version 0 knows client metrics only."""

    resource_types: list[Int8] = since(1)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    """Their names."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Struct):
    """An element of `ListConfigResourcesResponse.config_resources`."""

    resource_name: str = ""
    resource_type: Int8 = since(1, default=16)
