"""RenewDelegationToken (39) prolongs a delegation token. KIP-48."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    """Names the token by its HMAC."""

    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    """The new time of expiry."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
