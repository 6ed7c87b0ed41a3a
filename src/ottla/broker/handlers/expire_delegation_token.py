"""ExpireDelegationToken (40), versions 1-2: set the expiry of a token, or delete it. KIP-48.

Only the owner and the renewers may do this, which the controller checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.forwarding import decide_or_forward
from ottla.broker.token_requests import may_manage_tokens
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import TokenPorts


def handle(
    broker: TokenPorts, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Completion[ExpireDelegationTokenResponse]:
    """Return the new expiry once it is durable."""
    if not may_manage_tokens(broker, context):
        return ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    principal, now_ms = context.principal, broker.clock.wall_ms()
    decided = decide_or_forward(
        broker, context, request, lambda controller: controller.expire_delegation_token(request, principal, now_ms)
    )
    return decided.otherwise(lambda error: ExpireDelegationTokenResponse(error.code))
