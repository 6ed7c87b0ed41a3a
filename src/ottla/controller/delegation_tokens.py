"""Delegation tokens: create, renew, expire, and delete those that expired. KIP-48, KIP-373.

A token has two ends: its expiry, which a renewal moves, and the end of its maximum lifetime, which nothing moves. The
owner and the renewers may renew and expire it. The requester created it, for itself or for another owner.

The caller authorizes the request first. Times are ms of the wall clock, since they are durable.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode
from ottla.common.ids import uuid_to_text
from ottla.controller.state import Outcome, State, random_uuid
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from ottla.security.delegation_token import TokensByHmac

logger = logging.getLogger(__name__)

# metadata.version 3.6-IV2 has the records.
TOKENS_FROM: Final = 14
MOST_DELETED: Final = 1_000
LATEST_MS: Final = 2**63 - 1
USER: Final = "User"


def create(
    state: State, request: CreateDelegationTokenRequest, requester: str, now_ms: int
) -> Outcome[CreateDelegationTokenResponse]:
    """Create a token. Errors: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION, INVALID_PRINCIPAL_TYPE."""
    owner = owner_of(request, requester)
    response = CreateDelegationTokenResponse()
    response.principal_type, _, response.principal_name = owner.partition(":")
    kind, _, name = requester.partition(":")
    response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    response.error_code = _unavailable(state) or _wrong_principals(request)
    tokens = state.tokens
    if response.error_code or tokens is None:
        return Outcome([], response)
    settings = state.settings.tokens
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    response.issue_timestamp_ms = now_ms
    response.max_timestamp_ms = _later(now_ms, lifetime_ms)
    response.expiry_timestamp_ms = min(response.max_timestamp_ms, _later(now_ms, settings.expiry_time_ms))
    response.token_id = _new_id(state)
    response.hmac = tokens.hmac_of(response.token_id)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=response.max_timestamp_ms,
        expiration_timestamp=response.expiry_timestamp_ms,
        token_id=response.token_id,
    )
    return Outcome([record], response)


def renew(
    state: State, request: RenewDelegationTokenRequest, principal: str, now_ms: int
) -> Outcome[RenewDelegationTokenResponse]:
    """Move the expiry of a token. Errors: DELEGATION_TOKEN_NOT_FOUND, _EXPIRED, _OWNER_MISMATCH and others."""
    code, token = _find(state, request.hmac)
    if token is None:
        return Outcome([], RenewDelegationTokenResponse(code))
    if has_expired(token, now_ms):
        return Outcome([], RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_EXPIRED))
    if not may_renew(token, principal):
        return Outcome([], RenewDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    period_ms = state.settings.tokens.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp, _later(now_ms, period_ms))
    return Outcome([_expiring_at(token, expiry_ms)], RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def expire(
    state: State, request: ExpireDelegationTokenRequest, principal: str, now_ms: int
) -> Outcome[ExpireDelegationTokenResponse]:
    """Set the expiry of a token; with a negative period delete it now, even if it expired. Errors as of `renew`."""
    code, token = _find(state, request.hmac)
    if token is None:
        return Outcome([], ExpireDelegationTokenResponse(code))
    if not may_renew(token, principal):
        return Outcome([], ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    if request.expiry_time_period_ms < 0:
        removal = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Outcome([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    if has_expired(token, now_ms):
        return Outcome([], ExpireDelegationTokenResponse(ErrorCode.DELEGATION_TOKEN_EXPIRED))
    expiry_ms = min(token.max_timestamp, _later(now_ms, request.expiry_time_period_ms))
    return Outcome([_expiring_at(token, expiry_ms)], ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def delete_expired(state: State, now_ms: int) -> Outcome[bool]:
    """Delete expired tokens; True if the caller must call again. Without a secret key nothing is deleted."""
    if _unavailable(state):
        return Outcome([], False)
    expired = [token for token in state.image.delegation_tokens.values() if has_expired(token, now_ms)]
    for token in expired[:MOST_DELETED]:
        text = "[QuorumController id=%d] Delegation token expired for token: %s for owner: %s"
        logger.info(text, state.node_id, token.token_id, token.owner)
    records = [RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired[:MOST_DELETED]]
    return Outcome([*records], len(expired) > MOST_DELETED)


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Return the owner of the requested token: another principal (KIP-373), or the requester."""
    if not request.owner_principal_name:
        return requester
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether the token cannot be used any more."""
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal is the owner or a renewer."""
    return principal == token.owner or principal in token.renewers


def _unavailable(state: State) -> ErrorCode:
    if state.tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.NONE if state.image.metadata_version >= TOKENS_FROM else ErrorCode.UNSUPPORTED_VERSION


def _wrong_principals(request: CreateDelegationTokenRequest) -> ErrorCode:
    has_owner = bool(request.owner_principal_name)
    kinds = [each.principal_type for each in request.renewers]
    if any(kind != USER for kind in kinds) or (has_owner and not request.owner_principal_type):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE


def _find(state: State, token_hmac: bytes) -> tuple[ErrorCode, DelegationTokenRecord | None]:
    """The token, or the error without it."""
    code = _unavailable(state)
    if code or state.tokens is None:
        return code, None
    tokens: TokensByHmac[DelegationTokenRecord] = state.tokens
    return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, tokens.find(state.image.delegation_tokens, token_hmac)


def _new_id(state: State) -> str:
    while True:
        token_id = uuid_to_text(random_uuid(state.random))
        if token_id not in state.image.delegation_tokens:
            return token_id


def _expiring_at(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        token.owner, token.requester, token.renewers, token.issue_timestamp, token.max_timestamp, expiry_ms,
        token.token_id,
    )  # fmt: skip


def _later(now_ms: int, by_ms: int) -> int:
    return min(now_ms + by_ms, LATEST_MS)
