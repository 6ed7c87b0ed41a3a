"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and IP addresses.

KIP-546, KIP-599, KIP-612.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, _context: RequestContext, request: AlterClientQuotasRequest
) -> Slices[AlterClientQuotasResponse]:
    """Change the quotas of each entity completely or not at all; respond when the changes are durable."""
    try:
        return (
            yield from result_of(broker.metadata.submit(lambda controller: controller.alter_client_quotas(request)))
        )
    except KafkaError as error:
        entries = []
        for entry in request.entries:
            entity = [ResponseEntityData(each.entity_type, each.entity_name) for each in entry.entity]
            entries.append(ResponseEntryData(error.code, error.message, entity))
            yield
        return AlterClientQuotasResponse(entries=entries)
