"""AlterUserScramCredentials (51), version 0: refused, because there are no users. KIP-554."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "SCRAM credentials are not supported by this broker."


def handle(
    _broker: object, _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Slices[AlterUserScramCredentialsResponse]:
    """Return UNSUPPORTED_VERSION for each user."""
    results: dict[str, AlterUserScramCredentialsResult] = {}
    deleted, upserted = (each.name for each in request.deletions), (each.name for each in request.upsertions)
    for name in chain(deleted, upserted):
        results[name] = AlterUserScramCredentialsResult(name, ErrorCode.UNSUPPORTED_VERSION, MESSAGE)
        yield
    return AlterUserScramCredentialsResponse(results=list(results.values()))
