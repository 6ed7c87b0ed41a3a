"""AlterUserScramCredentials (51), version 0: set and delete SCRAM credentials. KIP-554."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Slices[AlterUserScramCredentialsResponse]:
    """Change the credentials; the response has an error for each user whose change is invalid."""
    submitted = broker.metadata.submit(lambda controller: controller.alter_user_scram_credentials(request))
    try:
        return (yield from result_of(submitted))
    except KafkaError as error:
        results: dict[str, AlterUserScramCredentialsResult] = {}
        deleted, upserted = (each.name for each in request.deletions), (each.name for each in request.upsertions)
        for name in chain(deleted, upserted):
            results[name] = AlterUserScramCredentialsResult(name, error.code, error.message)
            yield
        return AlterUserScramCredentialsResponse(results=list(results.values()))
