"""DeleteAcls (31) removes access rules that match filters. KIP-140, KIP-290."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    """The filters."""

    filters: list[DeleteAclsFilter] = []


class DeleteAclsFilter(Struct):
    """An element of `DeleteAclsRequest.filters`."""

    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    """The rules removed, per filter."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class DeleteAclsFilterResult(Struct):
    """An element of `DeleteAclsResponse.filter_results`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsMatchingAcl(Struct):
    """An element of `DeleteAclsFilterResult.matching_acls`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
