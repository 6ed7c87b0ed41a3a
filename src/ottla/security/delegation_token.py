"""Delegation tokens (KIP-48): the secret key of the cluster, and the HMAC that is the password of a token.

The HMAC of a token is HMAC-SHA512 of its id under `delegation.token.secret.key`, as in Kafka's DelegationTokenManager,
so that it is in no record: each node with the key can compute it. A client logs in by SCRAM with the token's id as user
name and the HMAC in base64 as password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Generic, TypeVar

from ottla.security import scram

T = TypeVar("T")


class SecretKey:
    """The key that signs tokens. No text of this object contains it."""

    __slots__ = ("_key",)

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("the secret key of delegation tokens is empty")
        self._key = text.encode()

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token: 64 bytes."""
        return hmac.digest(self._key, token_id.encode(), "sha512")


def password_of(token_hmac: bytes) -> str:
    """Return the password with which a client logs in."""
    return base64.b64encode(token_hmac).decode()


def credential_of(mechanism: str, token_hmac: bytes, salt: bytes) -> scram.Credential:
    """Derive the SCRAM credential of a token, with the fewest iterations, as in Kafka. Takes milliseconds."""
    salted = scram.salted_password(mechanism, password_of(token_hmac), salt, scram.MIN_ITERATIONS)
    return scram.derive(mechanism, salted, salt, scram.MIN_ITERATIONS)


class TokensByHmac(Generic[T]):
    """Finds tokens by their HMAC. Each HMAC is computed once, when its token is first seen."""

    def __init__(self, key: SecretKey) -> None:
        self._key = key
        self._tokens: Mapping[str, T] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        return self._hmacs.get(token_id) or self._key.hmac_of(token_id)

    def find(self, tokens: Mapping[str, T], token_hmac: bytes) -> T | None:
        """Return the token with this HMAC among `tokens`, by id; a mapping that was searched must not change."""
        if tokens is not self._tokens:
            self._follow(tokens)
        token_id = self._ids.get(token_hmac)
        return None if token_id is None else tokens[token_id]

    def _follow(self, tokens: Mapping[str, T]) -> None:
        for removed in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(removed)]
        for added in tokens.keys() - self._hmacs.keys():
            token_hmac = self._hmacs[added] = self._key.hmac_of(added)
            self._ids[token_hmac] = added
        self._tokens = tokens
