"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users, without secrets. KIP-554."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.security import scram

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Slices[DescribeUserScramCredentialsResponse]:
    """Describe the named users, or all users that have credentials if the request names none."""
    credentials = broker.metadata.image.scram_credentials
    named = [user.name for user in request.users or ()]
    counts = Counter(named) if named else Counter(dict.fromkeys(sorted(name for name, _ in credentials), 1))
    results = []
    for name, count in counts.items():
        yield
        result = DescribeUserScramCredentialsResult(user=name)
        results.append(result)
        if count > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            text = "Cannot describe SCRAM credentials for the same user twice in a single request: "
            result.error_message = text + name
            continue
        for number in scram.NUMBERS.values():
            found = credentials.get((name, number))
            if found is not None:
                result.credential_infos.append(CredentialInfo(mechanism=number, iterations=found.iterations))
        if not result.credential_infos:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResponse(results=results)
