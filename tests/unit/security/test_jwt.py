"""Tokens of an authorization server: what a broker accepts, and what attackers send. KIP-768."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import time
from functools import cache
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from ottla.security.jwt import (
    MAX_TOKEN_BYTES,
    Expectations,
    KeySet,
    TokenRejected,
    UnknownKey,
    UnsecuredRules,
    ValidToken,
    verify,
    verify_unsecured,
)
from ottla.security.oauthbearer import unsecured_jws

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
CLAIMS = {"sub": "alice", "iss": "https://idp", "aud": "kafka", "iat": NOW_S, "exp": NOW_S + 600, "scope": ["a", "b"]}
EXPECTED = Expectations(audience=("kafka", "other"), issuer="https://idp", clock_skew_s=30)


@cache
def rsa_key(name: str = "rsa", bits: int = 2048) -> rsa.RSAPrivateKey:
    """A key for each name."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(curve: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key({"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}[curve])


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public(key: Any, kid: str | None = "rsa", **members: object) -> dict[str, Any]:
    """The JWK of a private key."""
    kind = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "Ed": OKPAlgorithm}
    algorithm = next(each for name, each in kind.items() if name.lower() in type(key).__name__.lower()[:3])
    found: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)  # type: ignore[attr-defined]
    return {name: value for name, value in found.items() if name != "key_ops"} | (
        {} if kid is None else {"kid": kid}
    ) | members  # fmt: skip


def key_set(*keys: dict[str, Any]) -> KeySet:
    return KeySet(json.dumps({"keys": keys or [public(rsa_key())]}).encode())


def token(claims: dict[str, Any] | None = None, key: Any = None, algorithm: str = "RS256", **headers: object) -> str:
    """A signed token; a header that is None is omitted."""
    given = {name: value for name, value in ({"kid": "rsa"} | headers).items() if value is not None}
    return pyjwt.encode(CLAIMS | (claims or {}), key or rsa_key(), algorithm, headers=given)


def encoded(*parts: object) -> str:
    """Sections of a token from JSON values or bytes."""
    data = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in parts]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in data)


def check(text: str, keys: KeySet | None = None, expected: Expectations = EXPECTED, now_ms: int = NOW_MS) -> ValidToken:
    return verify(text, keys or key_set(), expected, now_ms)


def reason(text: str, keys: KeySet | None = None, expected: Expectations = EXPECTED) -> str:
    with pytest.raises(TokenRejected) as rejection:
        check(text, keys, expected)
    assert (rejection.value.status, rejection.value.scope) == ("invalid_token", None)
    assert len(text) < 40 or text[-40:] not in str(rejection.value)
    return str(rejection.value)


def test_valid_token_has_a_user_an_expiry_and_scopes() -> None:
    assert check(token()) == ValidToken("alice", (NOW_S + 600) * 1000, frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("algorithm", "key", "kid"),
    [
        *((f"{kind}{bits}", rsa_key, "rsa") for kind in ("RS", "PS") for bits in (256, 384, 512)),
        ("ES256", lambda: ec_key("P-256"), "ec"),
        ("ES384", lambda: ec_key("P-384"), "ec"),
        ("ES512", lambda: ec_key("P-521"), "ec"),
        ("EdDSA", ed_key, "ed"),
    ],
)
def test_each_algorithm_of_public_keys_is_accepted(algorithm: str, key: Any, kid: str) -> None:
    keys = key_set(public(rsa_key("another"), kid), public(key(), kid))
    assert check(token(key=key(), algorithm=algorithm, kid=kid), keys).subject == "alice"


# -- claims ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"exp": NOW_S - 30}, "has expired"),
        ({"exp": 0}, "has expired"),
        ({"exp": None}, "exp is missing"),
        ({"iat": None}, "iat is missing"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"exp": NOW_S + 5, "nbf": NOW_S + 10}, "expires before"),
        ({"exp": NOW_S + 5, "iat": NOW_S + 10}, "expires before"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"exp": float("nan")}, "exp is not a time"),
        ({"exp": float("inf")}, "exp is not a time"),
        ({"iat": -1}, "iat is not a time"),
        ({"aud": "orders"}, "aud has none"),
        ({"aud": None}, "aud has none"),
        ({"aud": ["orders", 7, None]}, "aud has none"),
        ({"aud": {"kafka": "kafka"}}, "aud has none"),
        ({"iss": "https://idp/"}, "iss is not"),
        ({"iss": ["https://idp"]}, "iss is not"),
        ({"iss": None}, "iss is not"),
        ({"sub": ""}, "sub, the name of the user"),
        ({"sub": "  "}, "sub, the name of the user"),
        ({"sub": None}, "sub, the name of the user"),
        ({"sub": {"name": "alice"}}, "sub, the name of the user"),
        ({"scope": ["a", "a"]}, "scope has an empty scope, or one twice"),
        ({"scope": ["a", ""]}, "scope has an empty scope"),
        ({"scope": ["a", 1]}, "scope has an empty scope"),
    ],
)
def test_token_with_a_wrong_claim_is_rejected(claims: dict[str, object], expected: str) -> None:
    claims = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    assert expected in reason(pyjwt.api_jws.encode(json.dumps(claims).encode(), rsa_key(), "RS256", {"kid": "rsa"}))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29, "iat": NOW_S - 600},
        {"exp": NOW_S + 600.5},
        {"nbf": NOW_S + 30},
        {"aud": ["orders", "other"]},
        {"scope": None},
        {"scope": "one scope"},
        {"sub": " alice "},
    ],
)
def test_clock_skew_and_lists_are_accepted(claims: dict[str, object]) -> None:
    assert check(token(claims)).subject == "alice"


def test_other_claims_name_the_user_and_the_scope() -> None:
    expected = Expectations(subject_claim="email", scope_claim="roles")
    valid = check(token({"email": "a@b", "roles": ["x"]}), expected=expected)
    assert (valid.subject, valid.scopes) == ("a@b", {"x"})
    assert "email, the name of the user" in reason(token(), expected=expected)


def test_audience_and_issuer_are_checked_only_if_they_are_configured() -> None:
    assert check(token({"aud": "orders", "iss": "https://other"}), expected=Expectations()).subject == "alice"


# -- attacks on the signature ----------------------------------------------------------------------------------


def test_token_of_another_key_is_rejected() -> None:
    assert reason(token(key=rsa_key("attacker"))) == "the signature is wrong"


def test_changed_claims_are_rejected() -> None:
    header, _, signature = token().split(".")
    assert reason(f"{header}.{encoded(CLAIMS | {'sub': 'admin'})}.{signature}") == "the signature is wrong"


def test_token_without_a_signature_is_rejected() -> None:
    assert "algorithm 'none'" in reason(unsecured_jws("admin", now_s=time.time()).value)
    header, payload, _ = token().split(".")
    assert reason(f"{header}.{payload}.") == "the signature is wrong"
    for name in ("None", "NONE", "", "nOnE", None, 7, ["RS256"], {"RS256": 1}):
        assert "is not one of RS256" in reason(encoded({"alg": name, "kid": "rsa"}, CLAIMS, b""))


@pytest.mark.parametrize("form", ["pem", "der", "n", "jwk"])
def test_public_key_is_not_an_hmac_secret(form: str) -> None:
    """The classic confusion: an attacker signs HS256 with the public key as the secret."""
    key = rsa_key().public_key()
    encoding = serialization.Encoding.PEM if form == "pem" else serialization.Encoding.DER
    secret = {
        "n": base64.urlsafe_b64decode(public(rsa_key())["n"] + "=="),
        "jwk": json.dumps(public(rsa_key())).encode(),
    }.get(form, key.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
    signing_input = encoded({"alg": "HS256", "kid": "rsa", "typ": "JWT"}, CLAIMS)
    forged = f"{signing_input}.{encoded(hmac.digest(secret, signing_input.encode(), hashlib.sha256))}"
    assert "algorithm 'HS256' is not one of" in reason(forged)


def test_symmetric_key_in_the_key_set_verifies_nothing() -> None:
    secret = b"s" * 32
    keys = key_set({"kty": "oct", "kid": "rsa", "k": encoded(secret), "alg": "HS256"})
    assert "is not one of" in reason(pyjwt.encode(CLAIMS, secret, "HS256", headers={"kid": "rsa"}), keys)


@pytest.mark.parametrize(
    ("members", "algorithm"), [({"alg": "RS256"}, "PS256"), ({"alg": "RS512"}, "RS256"), ({"use": "enc"}, "RS256")]
)
def test_key_for_another_use_is_not_used(members: dict[str, str], algorithm: str) -> None:
    with pytest.raises(UnknownKey, match="no key with the id 'rsa'"):
        check(token(algorithm=algorithm), key_set(public(rsa_key(), **members)))


def test_key_of_another_curve_is_not_used() -> None:
    with pytest.raises(UnknownKey):
        check(token(key=ec_key("P-256"), algorithm="ES256"), key_set(public(ec_key("P-384"))))


def test_keys_in_the_header_are_ignored() -> None:
    attacker = rsa_key("attacker")
    headers = {"jwk": public(attacker), "jku": "https://attacker/keys", "x5u": "https://attacker/certificate"}
    assert reason(token(key=attacker, **headers)) == "the signature is wrong"


def test_critical_extensions_are_rejected() -> None:
    assert "critical extensions" in reason(
        encoded({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}, {}, b"x")
    )


@pytest.mark.parametrize("kid", ["", "x", "x" * 1000, "../../dev/null", "' OR 1=1", "rsa\0"])
def test_unknown_key_may_be_in_a_newer_key_set(kid: str) -> None:
    with pytest.raises(UnknownKey) as unknown:
        check(token(kid=kid))
    assert len(str(unknown.value)) < 200
    assert "\0" not in str(unknown.value)


@pytest.mark.parametrize("kid", [7, ["rsa"], {"rsa": 1}, "x" * 1001])
def test_key_id_that_is_not_a_short_text_is_rejected(kid: object) -> None:
    header = encoded({"alg": "RS256", "kid": kid})
    _, payload, signature = token().split(".")
    assert "key id is not" in reason(f"{header}.{payload}.{signature}")


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_weak_key_is_not_used() -> None:
    weak = rsa_key("weak", 1024)
    assert "1024 bits" in reason(token(key=weak), key_set(public(weak)))


def test_private_members_of_a_key_are_not_read() -> None:
    key: dict[str, Any] = RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    assert "d" in key
    assert check(token(), key_set(key | {"kid": "rsa"} | {"key_ops": ["sign"]})).subject == "alice"


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "RSA", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa", "n": 7, "e": []},
        {"kty": "RSA", "kid": "rsa", "n": "!", "e": "AQAB"},
    ],
)
def test_malformed_key_is_a_rejection(key: dict[str, Any]) -> None:
    assert "the key set has a malformed RS256 key" in reason(token(), key_set(key))


# -- tokens without a key id, and large sets -------------------------------------------------------------------


def test_token_without_a_key_id_is_verified_by_one_of_the_keys_of_its_type() -> None:
    keys = key_set(public(ec_key("P-256"), None), public(rsa_key("another"), "1"), public(rsa_key(), None))
    assert check(token(kid=None), keys).subject == "alice"


def test_token_without_a_key_id_is_not_verified_by_many_keys() -> None:
    keys = key_set(*(public(rsa_key("another"), str(number)) for number in range(1_000)), public(rsa_key(), "last"))
    assert reason(token(kid=None), keys) == "the signature is wrong"
    assert check(token(kid="last"), keys).subject == "alice"


def test_token_is_verified_quickly_by_one_of_thousands_of_keys() -> None:
    other = public(rsa_key("another"))
    keys = key_set(*(other | {"kid": str(number)} for number in range(5_000)), public(rsa_key()))
    text = token()
    check(text, keys)
    began = time.process_time()
    for _ in range(50):
        check(text, keys)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b'{"keys": ' + b"[" * 100_000, b"<html>"]
)
def test_document_that_is_not_a_key_set_is_an_error(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is|Expecting|codec"):
        KeySet(document)


def test_keys_that_are_not_objects_are_skipped() -> None:
    document = {"keys": [None, 7, "x", [], {}, {"kty": 7}, {"kty": "RSA", "kid": 7}, public(rsa_key())]}
    assert check(token(), KeySet(json.dumps(document).encode())).subject == "alice"


# -- malformed tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1 sections"),
        ("a.b", "2 sections"),
        ("a.b.c.d.e", "5 sections"),
        ("!.b.c", "header is not base64"),
        (encoded(b"{", {}, b"x"), "header is not JSON"),
        (encoded([1], {}, b"x"), "header is not a JSON object"),
        (encoded(b"[" * 30_000, {}, b"x"), "header is not JSON"),
        ("x" * (MAX_TOKEN_BYTES + 1), "more than 65536"),
    ],
)
def test_malformed_token_is_rejected(text: str, expected: str) -> None:
    assert expected in reason(text)


@pytest.mark.parametrize("payload", [b"[]", b"7", b"{", b"[" * 10_000, b'{"exp":' + b"9" * 5_000 + b"}", b"\xff"])
def test_signed_payload_that_is_not_an_object_is_rejected(payload: bytes) -> None:
    assert reason(pyjwt.api_jws.encode(payload, rsa_key(), "RS256", {"kid": "rsa"})).startswith("the payload is not")


@given(st.text(max_size=60) | st.lists(st.binary(max_size=30), min_size=3, max_size=3).map(lambda p: encoded(*p)))
def test_any_text_is_a_token_or_rejected(text: str) -> None:
    with pytest.raises(TokenRejected):
        check(text)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_changed_byte_of_a_token_is_accepted_as_another_user(place: int, byte: int) -> None:
    data = bytearray(token().encode())
    data[place % len(data)] = byte
    with contextlib.suppress(TokenRejected):
        assert check(data.decode("latin-1")).subject == "alice"


# -- unsecured tokens ------------------------------------------------------------------------------------------


def unsecured(claims: dict[str, object] | None = None, header: object = None, signature: str = "") -> str:
    return f"{encoded(header or {'alg': 'none'}, {'sub': 'alice', 'exp': NOW_S + 60} | (claims or {}))}.{signature}"


def test_unsecured_token_is_accepted_like_by_kafkas_handler() -> None:
    valid = verify_unsecured(unsecured({"scope": "a b"}), UnsecuredRules(), NOW_MS)
    assert valid == ValidToken("alice", (NOW_S + 60) * 1000, frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (unsecured(header={"alg": "RS256"}), "it is signed"),
        (unsecured(signature="abcd"), "it is signed"),
        (unsecured({"exp": None}), "exp is missing"),
        (unsecured({"exp": NOW_S}), "has expired"),
        (unsecured({"iat": NOW_S + 1}), "issued in the future"),
        (unsecured({"iat": NOW_S - 5, "exp": NOW_S - 5}), "has expired"),
        (unsecured({"sub": 7}), "sub, the name of the user"),
    ],
)
def test_invalid_unsecured_token_is_rejected(text: str, expected: str) -> None:
    with pytest.raises(TokenRejected, match=expected):
        verify_unsecured(text, UnsecuredRules(), NOW_MS)


def test_missing_scope_has_an_error_of_its_own() -> None:
    rules = UnsecuredRules.from_options(
        {"unsecuredValidatorRequiredScope": "a b", "unsecuredValidatorAllowableClockSkewMs": "3000"}
    )
    assert rules.clock_skew_ms == 3_000
    with pytest.raises(TokenRejected) as rejection:
        verify_unsecured(unsecured({"scope": ["a"]}), rules, NOW_MS)
    assert (rejection.value.status, rejection.value.scope) == ("insufficient_scope", "[a, b]")
    assert verify_unsecured(unsecured({"scope": ["b", "a"]}), rules, NOW_MS).subject == "alice"
