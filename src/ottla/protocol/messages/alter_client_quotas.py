"""AlterClientQuotas (49) sets or removes client quotas. KIP-546."""

from __future__ import annotations

from ottla.protocol.message import Float64, Int16, Int32, Message, Struct


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    """Operations on the quotas of entities."""

    entries: list[RequestEntryData] = []
    validate_only: bool = False


class RequestEntryData(Struct):
    """An element of `AlterClientQuotasRequest.entries`."""

    entity: list[RequestEntityData] = []
    ops: list[OpData] = []


class RequestEntityData(Struct):
    """An element of `RequestEntryData.entity`."""

    entity_type: str = ""
    entity_name: str | None = ""


class OpData(Struct):
    """An element of `RequestEntryData.ops`."""

    key: str = ""
    value: Float64 = 0.0
    remove: bool = False


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    """The outcome per entity."""

    throttle_time_ms: Int32 = 0
    entries: list[ResponseEntryData] = []


class ResponseEntryData(Struct):
    """An element of `AlterClientQuotasResponse.entries`."""

    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[ResponseEntityData] = []


class ResponseEntityData(Struct):
    """An element of `ResponseEntryData.entity`."""

    entity_type: str = ""
    entity_name: str | None = ""
