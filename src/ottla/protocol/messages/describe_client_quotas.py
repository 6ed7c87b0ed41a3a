"""DescribeClientQuotas (48) lists client quotas that match a filter. KIP-546."""

from __future__ import annotations

from ottla.protocol.message import Float64, Int8, Int16, Int32, Message, Struct


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    """A filter of entities."""

    components: list[ComponentData] = []
    strict: bool = False


class ComponentData(Struct):
    """An element of `DescribeClientQuotasRequest.components`."""

    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    """Entities and their quotas."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


class EntryData(Struct):
    """An element of `DescribeClientQuotasResponse.entries`."""

    entity: list[EntityData] = []
    values: list[ValueData] = []


class EntityData(Struct):
    """An element of `EntryData.entity`."""

    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    """An element of `EntryData.values`."""

    key: str = ""
    value: Float64 = 0.0
