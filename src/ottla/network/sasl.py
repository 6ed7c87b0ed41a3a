"""Logs a client in: SaslHandshake, then tokens in SaslAuthenticate until both sides agree. KIP-43, 152, 368.

`log_in` gets a function that sends requests, so that it serves new connections and renewed sessions alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, cast

from ottla.network.errors import AuthenticationRefused, MechanismRefused, UnsupportedRequest
from ottla.protocol.message import Message
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.mechanism import SaslClient, SaslError

# Returns a new exchange at each call, perhaps after waiting for a token. Raises NetworkError.
SaslSource: TypeAlias = Callable[[], Awaitable[SaslClient]]

# No mechanism needs more than three tokens.
MOST_TOKENS: Final = 10
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
_NO_SASL: Final = "{} does not use SASL: set security.protocol to PLAINTEXT or SSL"


async def log_in(
    address: str,
    exchange: SaslClient,
    highest_version: Callable[[int], int],
    ask: Callable[[Message, int], Awaitable[Message | None]],
) -> int:
    """Authenticate at the broker; returns the session lifetime in ms, 0 for the life of the connection.

    Raises AuthenticationRefused, or what `ask` raises.
    """
    try:
        newest = highest_version(SaslHandshakeRequest.API_KEY)
    except UnsupportedRequest:
        raise AuthenticationRefused(_NO_SASL.format(address)) from None
    if newest < 1:
        raise AuthenticationRefused(f"{address} is too old to log in to: it has no SaslAuthenticate (Kafka 1.0)")
    handshake = cast("SaslHandshakeResponse", await ask(SaslHandshakeRequest(exchange.name), 1))
    if handshake.error_code == UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise MechanismRefused(f"{address} does not support {exchange.name}; it offers {offered}: set sasl.mechanism")
    if handshake.error_code == ILLEGAL_SASL_STATE:
        raise AuthenticationRefused(_NO_SASL.format(address))
    if handshake.error_code:
        raise AuthenticationRefused(f"{address} refuses to begin {exchange.name}: error {handshake.error_code}")
    version = highest_version(SaslAuthenticateRequest.API_KEY)
    try:
        token: bytes | None = exchange.start()
        for _ in range(MOST_TOKENS):
            request = SaslAuthenticateRequest(token or b"")
            answer = cast("SaslAuthenticateResponse", await ask(request, version))
            if answer.error_code:
                text = answer.error_message or f"error {answer.error_code}"
                raise AuthenticationRefused(f"{address} refuses to log in by {exchange.name}: {text}")
            token = exchange.answer(answer.auth_bytes)
            if token is None and exchange.is_complete:
                return answer.session_lifetime_ms
    except SaslError as error:
        raise AuthenticationRefused(f"{address}: {error}") from error
    raise AuthenticationRefused(f"{address} did not complete {exchange.name} within {MOST_TOKENS} tokens")


def renewal_delay_s(lifetime_ms: int, chance: float) -> float:
    """When to log in again: after 85 to 95 % of the session. `chance` in [0, 1) spreads the log-ins of many clients."""
    return lifetime_ms / 1000 * (0.85 + 0.1 * chance)
