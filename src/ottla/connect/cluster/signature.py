"""Signatures of internal requests between the workers of a group (KIP-507). No I/O.

The leader generates a session key and writes it to the topic of configurations, which only workers may read. A worker
signs the body of a request with the key that it has read last. Source: InternalRequestSignature of Kafka 4.3.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Mapping
from typing import Final

from ottla.connect.cluster.values import SessionKey
from ottla.connect.errors import SignatureError

SIGNATURE: Final = "X-Connect-Authorization"
ALGORITHM: Final = "X-Connect-Request-Signature-Algorithm"
DEFAULT_ALGORITHM: Final = "HmacSHA256"
_HASHES: Final = {"HmacSHA1": "sha1", "HmacSHA256": "sha256", "HmacSHA384": "sha384", "HmacSHA512": "sha512"}


def is_known(algorithm: str) -> bool:
    """Whether signatures of this algorithm can be made."""
    return algorithm in _HASHES


def key_bytes(algorithm: str) -> int:
    """Return the length of a new key, the same as Java's."""
    return hashlib.new(_HASHES[algorithm]).digest_size


def sign(body: bytes, key: SessionKey, algorithm: str = DEFAULT_ALGORITHM) -> dict[str, str]:
    """Return the headers of a signed request."""
    return {SIGNATURE: base64.b64encode(_signature(body, key, algorithm)).decode(), ALGORITHM: algorithm}


def check(body: bytes, headers: Mapping[str, str], key: SessionKey | None, permitted: Collection[str]) -> None:
    """Raise SignatureError, with Kafka's message, unless the request is signed. Header names are lowercase."""
    algorithm, text = headers.get(ALGORITHM.lower()), headers.get(SIGNATURE.lower())
    if algorithm is None or text is None:
        raise SignatureError(400, "Internal request missing required signature")
    if algorithm not in permitted or algorithm not in _HASHES:
        raise SignatureError(
            400,
            f"This worker does not support the '{algorithm}' key signing algorithm used by other workers. "
            f"This worker is currently configured to use: [{', '.join(permitted)}]. Check that all workers' "
            "configuration files permit the same set of signature algorithms, and correct any misconfigured worker "
            "and restart it.",
        )
    if key is None:
        raise SignatureError(
            503,
            "This worker is still starting up and has not been able to read a session key from the config topic yet",
        )
    try:
        given = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise SignatureError(400, f"The signature is not Base64: {error}") from error
    if not hmac.compare_digest(_signature(body, key, algorithm), given):
        raise SignatureError(403, "Internal request contained invalid signature.")


def _signature(body: bytes, key: SessionKey, algorithm: str) -> bytes:
    return hmac.new(key.key, body, _HASHES[algorithm]).digest()
