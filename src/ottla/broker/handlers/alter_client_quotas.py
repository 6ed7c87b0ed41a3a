"""AlterClientQuotas (49), versions 0-1: refused, because there are no client quotas. KIP-546."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "Client quotas are not supported by this broker."


def handle(
    _broker: object, _context: RequestContext, request: AlterClientQuotasRequest
) -> Slices[AlterClientQuotasResponse]:
    """Return UNSUPPORTED_VERSION for each entity."""
    entries = []
    for entry in request.entries:
        entity = []
        for each in entry.entity:
            entity.append(ResponseEntityData(each.entity_type, each.entity_name))
            yield
        entries.append(ResponseEntryData(ErrorCode.UNSUPPORTED_VERSION, MESSAGE, entity))
        yield
    return AlterClientQuotasResponse(entries=entries)
