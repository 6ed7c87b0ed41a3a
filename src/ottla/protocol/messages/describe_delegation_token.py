"""DescribeDelegationToken (41) lists delegation tokens. KIP-48, KIP-373."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    """Asks for tokens by owner; null means all."""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenOwner(Struct):
    """An element of `DescribeDelegationTokenRequest.owners`."""

    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    """The tokens."""

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


class DescribedDelegationToken(Struct):
    """An element of `DescribeDelegationTokenResponse.tokens`."""

    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = since(3)
    token_requester_principal_name: str = since(3)
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribedDelegationTokenRenewer(Struct):
    """An element of `DescribedDelegationToken.renewers`."""

    principal_type: str = ""
    principal_name: str = ""
