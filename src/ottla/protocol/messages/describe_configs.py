"""DescribeConfigs (32) shows settings with their sources. KIP-133, KIP-226, KIP-569."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, since


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    """Asks for settings of resources."""

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = since(3)


class DescribeConfigsResource(Struct):
    """An element of `DescribeConfigsRequest.resources`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    """The settings of each resource."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class DescribeConfigsResult(Struct):
    """An element of `DescribeConfigsResponse.results`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResourceResult(Struct):
    """An element of `DescribeConfigsResult.configs`."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Int8 = since(3)
    documentation: str | None = since(3)


class DescribeConfigsSynonym(Struct):
    """An element of `DescribeConfigsResourceResult.synonyms`."""

    name: str = ""
    value: str | None = ""
    source: Int8 = 0
