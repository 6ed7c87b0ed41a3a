"""OAUTHBEARER (RFC 7628, KIP-255): tokens that an authorization server signed, and unsecured tokens for tests.

`OAuthBearerClient` sends a token and its extensions (KIP-342), `OAuthBearerServer` has it validated by a function of
`jwt` or of an operator. `unsecured_jws` creates an unsigned token, for tests with brokers that have no validator.
`TokenCache` determines when a new token must be requested.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ottla.common.completion import Completion
from ottla.security.jwt import TokenRejected, ValidToken
from ottla.security.mechanism import AuthenticationError, Identity, SaslError

NAME: Final = "OAUTHBEARER"
# A token is replaced after this part of its lifetime, as in Kafka's clients.
REFRESH_AFTER: Final = 0.8
# Later expiry times (about 30,000 years) are treated as invalid, because JSON numbers may have any size.
_NO_TIME_S: Final = 1e12
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_AUTH = re.compile(r"(?i:bearer) +([-_~+/.a-zA-Z0-9]+=*)")
_GS2 = re.compile(r"n,(?:a=((?:[^=,\x01\0]|=2C|=3D)+))?,")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A bearer token, which is reused until shortly before `expires_at_ms` (ms since the epoch); None: used once.

    `extensions` are names (letters) and values that are sent to the broker with the token.
    """

    value: str = field(repr=False)
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


class OAuthBearerClient:
    """Sends the token. A broker that rejects it describes the problem in JSON, which becomes the error's message."""

    name = NAME

    def __init__(self, token: OAuthToken) -> None:
        if not _TOKEN.fullmatch(token.value):
            raise SaslError("The OAUTHBEARER token is empty or has characters that no bearer token has")
        for key, value in token.extensions.items():
            if key == "auth" or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
                raise SaslError(f"The OAUTHBEARER extension {key!r} has a name or value that RFC 7628 does not allow")
        self._token = token
        self._problem = ""
        self.is_complete = False

    def start(self) -> bytes:
        """Return the token and its extensions."""
        pairs = {"auth": f"Bearer {self._token.value}", **self._token.extensions}
        return ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01").encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Return None if the broker accepts the token, else the dummy response after which it fails the exchange.

        Raises SaslError once the broker has rejected the token.
        """
        if self._problem:
            raise SaslError(f"The broker refuses the token: {self._problem}")
        if challenge:
            self._problem = challenge.decode(errors="replace")[:500]
            return b"\x01"
        self.is_complete = True
        return None

    @property
    def problem(self) -> str:
        """The broker's description of the problem with the token; empty if there is no problem."""
        return self._problem


class ClientMessage(NamedTuple):
    """A client's first message."""

    token: str
    authorization_id: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"ClientMessage(authorization_id={self.authorization_id!r})"


def read_message(token: bytes) -> ClientMessage:
    """Parse a client's first message; raises SaslError."""
    try:
        header, *pairs = token.decode().split("\x01")
    except UnicodeDecodeError:
        raise SaslError("The OAUTHBEARER message is not UTF-8") from None
    gs2 = _GS2.fullmatch(header)
    if gs2 is None or pairs[-2:] != ["", ""]:
        raise SaslError("The OAUTHBEARER message does not begin or end as RFC 7628 has it")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise SaslError("The OAUTHBEARER message has a pair that RFC 7628 does not allow")
        found[key] = value
    match = _AUTH.fullmatch(found.pop("auth", ""))
    if match is None:
        raise SaslError("The OAUTHBEARER message has no bearer token")
    return ClientMessage(match[1], (gs2[1] or "").replace("=2C", ",").replace("=3D", "="), found)


Validate: TypeAlias = Callable[[str], "ValidToken | Completion[ValidToken]"]
"""Returns the user of a token. It raises TokenRejected, or fails the completion with it."""


class OAuthBearerServer:
    """The broker's side of one exchange."""

    name = NAME

    def __init__(self, validate: Validate, report: Callable[[str], None]) -> None:
        """`report` receives the reason of a rejection, which the client does not."""
        self._validate = validate
        self._report = report
        self._problem = ""
        self.identity: Identity | None = None

    def answer(self, token: bytes) -> bytes | Completion[bytes]:
        """Return the empty answer to a valid token, or a description of the problem, after which the client ends.

        Raises SaslError, or fails the completion with it.
        """
        if self._problem:
            raise AuthenticationError(self._problem)
        message = read_message(token)
        try:
            validated = self._validate(message.token)
        except TokenRejected as rejection:
            return self._reject(rejection)
        if not isinstance(validated, Completion):
            return self._accept(message, validated)

        def decide(done: Completion[ValidToken]) -> bytes:
            try:
                return self._accept(message, done.result())
            except TokenRejected as rejection:
                return self._reject(rejection)

        later: Completion[bytes] = Completion()
        validated.on_done(lambda done: later.complete_with(decide, done))
        return later

    def _accept(self, message: ClientMessage, valid: ValidToken) -> bytes:
        if message.authorization_id not in ("", valid.subject):
            raise AuthenticationError(
                f"Authentication failed: Client requested an authorization id ({message.authorization_id}) that is"
                f" different from the token's principal name ({valid.subject})"
            )
        self.identity = Identity(valid.subject, valid.expires_at_ms)
        return b""

    def _reject(self, rejection: TokenRejected) -> bytes:
        self._report(str(rejection))
        scope = "" if rejection.scope is None else f', "scope":{json.dumps(rejection.scope)}'
        self._problem = f'{{"status":{json.dumps(rejection.status)}{scope}}}'
        return self._problem.encode()


class TokenCache:
    """Caches the last token until it must be replaced. Times are ms since the epoch."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None
        self._until_ms = 0.0

    def get(self, now_ms: float) -> OAuthToken | None:
        """Return the cached token if it can be used at `now_ms`, else None."""
        return self._token if now_ms < self._until_ms else None

    def put(self, token: OAuthToken, now_ms: float) -> None:
        """Cache a new token. A token without an expiry is not reused."""
        self._token = token
        self._until_ms = 0.0 if token.expires_at_ms is None else now_ms + (token.expires_at_ms - now_ms) * REFRESH_AFTER


def _segment(value: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def unsecured_jws(
    subject: str, *, now_s: float, lifetime_s: float = 3600.0, claims: Mapping[str, object] | None = None
) -> OAuthToken:
    """Create an unsigned token ("alg": "none") for `subject`, for tests."""
    body = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **(claims or {})}
    return OAuthToken(f"{_segment({'alg': 'none'})}.{_segment(body)}.", int((now_s + lifetime_s) * 1000))


def expiry_of(token: str) -> int | None:
    """The expiry time of a JWT in ms since the epoch, unverified; None if the token has none or is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):  # JSON may be nested more deeply than Python reads it
        return None
    expires_s = claims.get("exp") if isinstance(claims, dict) else None
    if not isinstance(expires_s, (int, float)) or isinstance(expires_s, bool):
        return None
    return int(expires_s * 1000) if 0 <= expires_s < _NO_TIME_S else None
