"""DescribeAcls (29) lists access rules that match a filter. KIP-140, KIP-290."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    """A filter of access rules."""

    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    """The rules that match, by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class DescribeAclsResource(Struct):
    """An element of `DescribeAclsResponse.resources`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class AclDescription(Struct):
    """An element of `DescribeAclsResource.acls`."""

    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
