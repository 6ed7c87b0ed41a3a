"""CreateDelegationToken (38) makes a delegation token. KIP-48, KIP-373."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    """Asks for a token and says who may renew it."""

    owner_principal_type: str | None = since(3)
    owner_principal_name: str | None = since(3)
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreatableRenewers(Struct):
    """An element of `CreateDelegationTokenRequest.renewers`."""

    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    """The token and its secret."""

    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = since(3)
    token_requester_principal_name: str = since(3)
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: Int32 = 0
