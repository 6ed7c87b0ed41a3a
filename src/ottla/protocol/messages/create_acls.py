"""CreateAcls (30) adds access rules. KIP-140, KIP-290."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    """The rules to add."""

    creations: list[AclCreation] = []


class AclCreation(Struct):
    """An element of `CreateAclsRequest.creations`."""

    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    """The outcome per rule."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


class AclCreationResult(Struct):
    """An element of `CreateAclsResponse.results`."""

    error_code: Int16 = 0
    error_message: str | None = ""
