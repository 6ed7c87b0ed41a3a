"""Plans about delegation tokens: KIP-48, KIP-373."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.clients.admin.access_model import DelegationToken
from ottla.clients.admin.core import Call, Route
from ottla.clients.errors import BrokerError, ConfigurationError, error_for
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

_ONLY = "token"


def _error(row: Any) -> BrokerError | None:
    return error_for(row.error_code) if row.error_code else None


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ConfigurationError(f"{text!r} is not a principal of the form User:name")
    return kind, name


def create(renewers: Iterable[str], owner: str | None, max_lifetime_ms: int) -> Call[str, DelegationToken]:
    """Create a token. Raises ConfigurationError for something that is not a principal."""
    may_renew = tuple(renewers)
    rows = [create_delegation_token.CreatableRenewers(*_principal(each)) for each in may_renew]
    kind, name = (None, None) if owner is None else _principal(owner)

    def ask(_: object) -> Message:
        return create_delegation_token.CreateDelegationTokenRequest(kind, name, rows, max_lifetime_ms)

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, DelegationToken | BrokerError]]:
        yield (
            keys[0],
            _error(response)
            or DelegationToken(
                token_id=response.token_id,
                hmac=response.hmac,
                owner=f"{response.principal_type}:{response.principal_name}",
                requester=f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
                renewers=may_renew,
                issue_timestamp_ms=response.issue_timestamp_ms,
                expiry_timestamp_ms=response.expiry_timestamp_ms,
                max_timestamp_ms=response.max_timestamp_ms,
            ),
        )

    return Call(Route.CONTROLLER, [_ONLY], ask, read)


def renew(hmac: bytes, period_ms: int) -> Call[str, int]:
    def ask(_: object) -> Message:
        return renew_delegation_token.RenewDelegationTokenRequest(hmac, period_ms)

    return Call(Route.CONTROLLER, [_ONLY], ask, _expiry)


def expire(hmac: bytes, period_ms: int) -> Call[str, int]:
    def ask(_: object) -> Message:
        return expire_delegation_token.ExpireDelegationTokenRequest(hmac, period_ms)

    return Call(Route.CONTROLLER, [_ONLY], ask, _expiry)


def _expiry(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, int | BrokerError]]:
    yield keys[0], _error(response) or response.expiry_timestamp_ms


def describe(owners: Iterable[str] | None) -> Call[str, list[DelegationToken]]:
    """Describe the tokens of owners, or all. Raises ConfigurationError for something that is not a principal."""
    module = describe_delegation_token
    rows = None if owners is None else [module.DescribeDelegationTokenOwner(*_principal(each)) for each in owners]

    def ask(_: object) -> Message:
        return module.DescribeDelegationTokenRequest(rows)

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, list[DelegationToken] | BrokerError]]:
        error = _error(response)
        yield keys[0], [_described(row) for row in response.tokens] if error is None else error

    return Call(Route.ANY, [_ONLY], ask, read)


def _described(row: describe_delegation_token.DescribedDelegationToken) -> DelegationToken:
    return DelegationToken(
        token_id=row.token_id,
        hmac=row.hmac,
        owner=f"{row.principal_type}:{row.principal_name}",
        requester=f"{row.token_requester_principal_type}:{row.token_requester_principal_name}",
        renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in row.renewers),
        issue_timestamp_ms=row.issue_timestamp,
        expiry_timestamp_ms=row.expiry_timestamp,
        max_timestamp_ms=row.max_timestamp,
    )
