"""DescribeClientQuotas (48), versions 0-1: the quotas of the entities that match a filter. KIP-546, KIP-612."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.metadata.image import CLIENT_ID, IP, USER, QuotaEntity
from ottla.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
_MATCH_TYPES = {EXACT: "EXACT", DEFAULT: "DEFAULT", SPECIFIED: "SPECIFIED"}

_Filter: TypeAlias = dict[str, tuple[int, str | None]]
"""The match type and the name by entity type."""


def handle(
    broker: HasMetadata, _context: RequestContext, request: DescribeClientQuotasRequest
) -> Slices[DescribeClientQuotasResponse]:
    """Return the quotas of all matching entities; INVALID_REQUEST for a filter that contradicts itself."""
    try:
        wanted = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, values in broker.metadata.image.client_quotas.items():
        yield
        if _matches(entity, wanted, strict=request.strict):
            entries.append(
                EntryData([EntityData(*part) for part in entity], [ValueData(*pair) for pair in values.items()])
            )
    return DescribeClientQuotasResponse(entries=entries)


def _filter(components: Iterable[ComponentData]) -> _Filter:
    """Raises INVALID_REQUEST, and UNSUPPORTED_VERSION for an unknown entity type."""
    wanted: _Filter = {}
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            text = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in _MATCH_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if (component.match is None) == (match_type == EXACT):
            problem = "but set match string to null." if match_type == EXACT else "but also specified a match string."
            text = f"Request specified MATCH_TYPE_{_MATCH_TYPES[match_type]}, {problem}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        wanted[kind] = match_type, component.match
    if IP in wanted and len(wanted) > 1:
        text = (
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return wanted


def _matches(entity: QuotaEntity, wanted: _Filter, *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (match_type == SPECIFIED or names[kind] == name)
        for kind, (match_type, name) in wanted.items()
    )
