"""JSON Web Tokens (RFC 7519) as bearer tokens: the keys of an authorization server, signatures and claims. KIP-768.

`KeySet` has the public keys of a JWKS document (RFC 7517), `verify` checks a token against them as Kafka's
BrokerJwtValidator does. `verify_unsecured` checks a token without a signature, as Kafka's
OAuthBearerUnsecuredValidatorCallbackHandler does: for tests only, because any client can create such a token.

The algorithm is never the token's choice alone: only signatures by a public key are accepted, and only by a key of the
algorithm's type, so that no client can sign with the public key itself as an HMAC secret. Keys in the token's header
(`jwk`, `jku`, `x5u`) are ignored.

Signatures need PyJWT and cryptography, the extra `ottla[security]`. The reason of a rejection is for the broker's log;
it has no part of the token except names of claims, algorithms and keys.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from ottla.security.mechanism import SaslError

# Tokens have some hundred bytes, with many groups of a user some thousand.
MAX_TOKEN_BYTES: Final = 64 * 1024
# A document has a few keys, at large providers some hundred.
MAX_KEY_SET_BYTES: Final = 8 * 1024 * 1024
# Without a key id the keys of the algorithm's type are tried, but not many: each costs a signature.
MOST_TRIED_KEYS: Final = 4
MAX_KEY_ID_LENGTH: Final = 1000
MIN_RSA_BITS: Final = 2048
_LATEST_S: Final = 1e12

# For each algorithm: the type of its keys, and their curves.
_KEYS_OF_ALGORITHM: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **{name: ("RSA", frozenset()) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
    "ES256": ("EC", frozenset({"P-256"})),
    "ES384": ("EC", frozenset({"P-384"})),
    "ES512": ("EC", frozenset({"P-521"})),
    "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
}
# The members of a public key; private members of a key must not be read.
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")


class TokenRejected(SaslError):
    """The token is not valid. The client receives only `status` and `scope` (RFC 7628, 3.2.2)."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class UnknownKey(TokenRejected):
    """The key set does not have the token's key. A newer key set may have it."""


class ValidToken(NamedTuple):
    """The user and the expiry (ms since the epoch) of a valid token. A custom validator returns it."""

    subject: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()


class Expectations(NamedTuple):
    """The claims that a token must have; by default any audience and any issuer is accepted."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


# -- keys ------------------------------------------------------------------------------------------------------


class KeySet:
    """The public keys of a JWKS document that can verify signatures, by key id. Keys are decoded at their first use."""

    def __init__(self, document: bytes) -> None:
        """Raises ValueError for a document that is not a JWKS."""
        try:
            content = json.loads(document)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        keys = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(keys, list):
            raise ValueError('it is not a JSON object with a list "keys"')  # noqa: TRY004 - the content is wrong
        self._by_id: dict[str | None, list[Mapping[str, Any]]] = {}
        self.size = 0
        for key in keys:
            if isinstance(key, dict) and key.get("use", "sig") == "sig" and isinstance(key.get("kty"), str):
                key_id = key.get("kid")
                self._by_id.setdefault(key_id if isinstance(key_id, str) else None, []).append(key)
                self.size += 1
        self._decoded: dict[tuple[int, str], Any] = {}

    def candidates(self, key_id: str | None, algorithm: str) -> list[Any]:
        """Return the keys that may have signed a token, as objects of `cryptography`. Raises UnknownKey."""
        keys = chain.from_iterable(self._by_id.values()) if key_id is None else self._by_id.get(key_id, [])
        found = list(islice((key for key in keys if _serves(key, algorithm)), MOST_TRIED_KEYS))
        if not found:
            shown = "" if key_id is None else f" with the id {key_id[:100]!a}"
            raise UnknownKey(f"the key set has no key{shown} for {algorithm}")
        return [self._decode(key, algorithm) for key in found]

    def _decode(self, key: Mapping[str, Any], algorithm: str) -> Any:
        place = id(key), algorithm
        if place not in self._decoded:
            self._decoded[place] = _decoded(key, algorithm)
        return self._decoded[place]


def _serves(key: Mapping[str, Any], algorithm: str) -> bool:
    kind, curves = _KEYS_OF_ALGORITHM[algorithm]
    if key["kty"] != kind or key.get("alg") not in (None, algorithm):
        return False
    return not curves or key.get("crv") in curves


def _decoded(key: Mapping[str, Any], algorithm: str) -> Any:
    from jwt import get_algorithm_by_name  # noqa: PLC0415 - in an extra
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    public = {name: key[name] for name in _PUBLIC if name in key}
    try:
        decoded = get_algorithm_by_name(algorithm).from_jwk(public)
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenRejected(f"the key set has a malformed {algorithm} key: {type(error).__name__}") from None
    if public["kty"] == "RSA" and decoded.key_size < MIN_RSA_BITS:
        raise TokenRejected(f"the key has {decoded.key_size} bits, fewer than {MIN_RSA_BITS}")
    return decoded


# -- signed tokens ---------------------------------------------------------------------------------------------


def verify(token: str, keys: KeySet, expected: Expectations, now_ms: int) -> ValidToken:
    """Check signature and claims of a token. Raises TokenRejected, as UnknownKey if a new key set may help."""
    header, _ = _parts(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _KEYS_OF_ALGORITHM:
        shown = algorithm[:40] if isinstance(algorithm, str) else None
        raise TokenRejected(f"the algorithm {shown!a} is not one of {', '.join(_KEYS_OF_ALGORITHM)}")
    if "crit" in header:
        raise TokenRejected("the header has critical extensions, and none is supported")
    key_id = header.get("kid")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID_LENGTH):
        raise TokenRejected("the key id is not a short text")
    candidates = keys.candidates(key_id, algorithm)
    return _checked(_verified(token, candidates, algorithm), expected, now_ms)


def _verified(token: str, candidates: list[Any], algorithm: str) -> Mapping[str, Any]:
    """The claims of a token whose signature is by one of the keys."""
    from jwt import PyJWS  # noqa: PLC0415 - in an extra
    from jwt.exceptions import PyJWTError  # noqa: PLC0415

    for key in candidates:
        try:
            payload = PyJWS().decode_complete(token, key, algorithms=[algorithm])["payload"]
        except (PyJWTError, ValueError, TypeError):
            continue
        return _object(payload, "payload")
    raise TokenRejected("the signature is wrong")


def _checked(claims: Mapping[str, Any], expected: Expectations, now_ms: int) -> ValidToken:
    """Check the claims as Kafka's BrokerJwtValidator does: `exp`, `iat` and the subject are required."""
    now_s, skew_s = now_ms / 1000, expected.clock_skew_s
    expires_s, issued_s, not_before_s = (_time(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_s is None or issued_s is None:
        raise TokenRejected(f"the claim {'exp' if expires_s is None else 'iat'} is missing")
    if now_s - skew_s >= expires_s:
        raise TokenRejected("the token has expired")
    if not_before_s is not None and now_s + skew_s < not_before_s:
        raise TokenRejected("the token is not valid yet")
    if expires_s < max(issued_s, not_before_s or 0.0):
        raise TokenRejected("the token expires before it is issued or valid")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise TokenRejected("the claim iss is not sasl.oauthbearer.expected.issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if expected.audience and not any(each in expected.audience for each in audiences if isinstance(each, str)):
        raise TokenRejected("the claim aud has none of sasl.oauthbearer.expected.audience")
    return ValidToken(
        _subject(claims, expected.subject_claim), int(expires_s * 1000), _scopes(claims, expected.scope_claim)
    )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 0 <= value < _LATEST_S:
        raise TokenRejected(f"the claim {name} is not a time")
    return float(value)


def _subject(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRejected(f"the claim {name}, the name of the user, is not text or is empty")
    return value.strip()


def _scopes(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    value = claims.get(name)
    given = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    scopes = [each.strip() if isinstance(each, str) else "" for each in given]
    if not all(scopes) or len(set(scopes)) < len(scopes):
        raise TokenRejected(f"the claim {name} has an empty scope, or one twice")
    return frozenset(scopes)


# -- parts -----------------------------------------------------------------------------------------------------


def _parts(token: str) -> tuple[Mapping[str, Any], tuple[str, str]]:
    """The header, unverified, and the encoded payload and signature."""
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRejected(f"it has {len(token)} characters, more than {MAX_TOKEN_BYTES}")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRejected(f"it has {len(parts)} sections, not header, payload and signature")
    return _object(_bytes(parts[0], "header"), "header"), (parts[1], parts[2])


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRejected(f"the {what} is not base64") from None


def _object(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise TokenRejected(f"the {what} is not JSON") from None
    if not isinstance(found, dict):
        raise TokenRejected(f"the {what} is not a JSON object")
    return found


# -- unsecured tokens ------------------------------------------------------------------------------------------


class UnsecuredRules(NamedTuple):
    """The options of Kafka's OAuthBearerUnsecuredValidatorCallbackHandler."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> UnsecuredRules:
        """Read the options of a login module. Raises ValueError."""
        get: Callable[[str], str] = lambda name: options.get(f"unsecuredValidator{name}", "").strip()  # noqa: E731
        skew_ms = int(get("AllowableClockSkewMs") or "0")
        if skew_ms < 0:
            raise ValueError(f"unsecuredValidatorAllowableClockSkewMs is {skew_ms}; it must not be negative")
        scope = tuple(get("RequiredScope").split())
        return cls(get("PrincipalClaimName") or "sub", get("ScopeClaimName") or "scope", scope, skew_ms)


def verify_unsecured(token: str, rules: UnsecuredRules, now_ms: int) -> ValidToken:
    """Check the claims of a token without a signature. Raises TokenRejected."""
    header, (payload, signature) = _parts(token)
    if header.get("alg") != "none" or signature:
        raise TokenRejected("it is signed, but the listener accepts only unsecured tokens")
    claims = _object(_bytes(payload, "payload"), "payload")
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    if expires_s is None:
        raise TokenRejected("the claim exp is missing")
    if issued_s is not None and 1000 * issued_s > now_ms + rules.clock_skew_ms:
        raise TokenRejected("the token is issued in the future")
    if now_ms - rules.clock_skew_ms >= 1000 * expires_s:
        raise TokenRejected("the token has expired")
    if issued_s is not None and expires_s <= issued_s:
        raise TokenRejected("the token expires before it is issued")
    subject = _subject(claims, rules.principal_claim)
    scope = claims.get(rules.scope_claim)
    scopes = frozenset(scope.split() if isinstance(scope, str) else _scopes(claims, rules.scope_claim))
    if not scopes.issuperset(rules.required_scope):
        required = f"[{', '.join(rules.required_scope)}]"
        raise TokenRejected("a required scope is missing", "insufficient_scope", required)
    return ValidToken(subject, int(expires_s * 1000), scopes)
