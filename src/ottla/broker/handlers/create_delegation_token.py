"""CreateDelegationToken (38), versions 1-3: create a token for the client, or for another owner. KIP-48, KIP-373.

The broker checks the request before it forwards it, and the controller checks it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.forwarding import decide_or_forward
from ottla.broker.token_requests import may_manage_tokens
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.controller.delegation_tokens import USER, owner_of
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import TokenPorts


def handle(
    broker: TokenPorts, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Completion[CreateDelegationTokenResponse]:
    """Return the token with its HMAC once it is durable."""
    requester = context.principal
    owner = owner_of(request, requester)

    def refused(code: int) -> CreateDelegationTokenResponse:
        kind, _, name = owner.partition(":")
        requester_kind, _, requester_name = requester.partition(":")
        return CreateDelegationTokenResponse(code, kind, name, requester_kind, requester_name, -1, -1, -1)

    if not may_manage_tokens(broker, context):
        return refused(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if owner != requester and not allowed(broker, context, Operation.CREATE_TOKENS, ResourceType.USER, owner):
        return refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != USER for renewer in request.renewers):
        return refused(ErrorCode.INVALID_PRINCIPAL_TYPE)
    now_ms = broker.clock.wall_ms()
    decided = decide_or_forward(
        broker, context, request, lambda controller: controller.create_delegation_token(request, requester, now_ms)
    )
    return decided.otherwise(lambda error: refused(error.code))
