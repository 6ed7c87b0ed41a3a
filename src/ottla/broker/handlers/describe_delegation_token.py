"""DescribeDelegationToken (41), versions 1-3: the tokens that the client may see, with their HMACs. KIP-48, KIP-373.

Owners and renewers see their tokens. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.token_requests import may_manage_tokens
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.controller.delegation_tokens import may_renew
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeTokenPorts
    from ottla.protocol.metadata_records import DelegationTokenRecord


def handle(
    broker: DescribeTokenPorts, context: RequestContext, request: DescribeDelegationTokenRequest
) -> Slices[DescribeDelegationTokenResponse]:
    """Return the tokens of the requested owners, or all tokens, as far as the client may see them."""
    tokens = broker.security.tokens
    if not may_manage_tokens(broker, context):
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if tokens is None:
        return DescribeDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    wanted = None
    if request.owners is not None:
        wanted = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    found = []
    for record in tokens.records.values() if wanted is None or wanted else ():
        yield
        is_wanted = wanted is None or record.owner in wanted or not wanted.isdisjoint(record.renewers)
        if is_wanted and _may_see(broker, context, record):
            found.append(_described(record, tokens.hmac_of(record.token_id)))
    return DescribeDelegationTokenResponse(tokens=found)


def _may_see(broker: DescribeTokenPorts, context: RequestContext, record: DelegationTokenRecord) -> bool:
    return (
        may_renew(record, context.principal)
        or allowed(broker, context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, record.token_id)
        or allowed(broker, context, Operation.DESCRIBE_TOKENS, ResourceType.USER, record.owner)
    )


def _described(record: DelegationTokenRecord, token_hmac: bytes) -> DescribedDelegationToken:
    kind, _, name = record.owner.partition(":")
    requester_kind, _, requester_name = record.requester.partition(":")
    renewers = [each.partition(":") for each in record.renewers]
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=token_hmac,
        renewers=[DescribedDelegationTokenRenewer(kind, name) for kind, _, name in renewers],
    )
