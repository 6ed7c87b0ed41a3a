"""Stock Kafka and Ottla accept the same tokens of an authorization server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ottla.clients import Admin, AuthenticationFailed
from ottla.security.oauthbearer import unsecured_jws
from tests.conftest import TEST_PROPERTIES
from tests.identity_provider import AUDIENCE, IdentityProvider
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.secured import SecuredKafka

from .secured_ottla import SecuredOttla
from .test_oauthbearer import oauth_settings

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-oauth")]

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
# Ottla uses a key only for its algorithm (RFC 7517, 4.4).
ONLY_STOCK = {"for another algorithm than the key's"}


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[list[str]]:
    """The listeners of Ottla and of stock Kafka, with the same settings."""
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    settings = oauth_settings(provider)
    stock = TEST_PROPERTIES | {
        name: value for name, value in settings.items() if "oauthbearer" in name
    } | {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": HANDLER}  # fmt: skip
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        with (
            SecuredKafka(tmp_path_factory.mktemp("stock"), stock) as kafka,
            SecuredOttla(tmp_path_factory.mktemp("ottla"), settings) as ottla,
        ):
            yield [ottla.address("SASL_PLAINTEXT"), kafka.address("SASL_PLAINTEXT")]
            ottla.assert_no_traceback()


def signed(
    provider: IdentityProvider, payload: dict[str, Any] | bytes, algorithm: str = "RS256", **headers: Any
) -> str:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return jwt.api_jws.encode(data, provider.keys["first"], algorithm, {"kid": "first", **headers})


def tokens(provider: IdentityProvider) -> dict[str, tuple[str, bool]]:
    """Tokens by a description, and whether they are accepted."""
    make, private = provider.token, provider.keys["first"]
    # PyJWT refuses to sign with a key in PEM or DER, so an attacker takes the modulus.
    public = private.public_key().public_numbers().n.to_bytes(256, "big")
    now_s = int(time.time())
    times = {"iat": now_s, "exp": now_s + 600}
    base = {"sub": "alice", "iss": "https://idp.example", "aud": AUDIENCE, **times}
    return {
        "valid": (make(), True),
        "expired": (make(iat=now_s - 600, exp=now_s - 60), False),
        "valid soon": (make(nbf=now_s + 20), True),
        "valid later": (make(nbf=now_s + 100), False),
        "issued in the future": (make(iat=now_s + 300), True),
        "expires before it is issued": (make(iat=now_s + 900), False),
        "no expiry": (make(exp=None), False),
        "no time of issue": (make(iat=None), False),
        "one of several audiences": (make(aud=["orders", AUDIENCE]), True),
        "another audience": (make(aud="orders"), False),
        "no audience": (make(aud=None), False),
        "another issuer": (make(iss="https://idp.example/"), False),
        "no issuer": (make(iss=None), False),
        "an empty user": (make(sub=" "), False),
        "no user": (make(sub=None), False),
        "scopes in a list": (make(scope=["a", "b"]), True),
        "a scope twice": (make(scope=["a", "a"]), False),
        "no scope": (make(scope=None), True),
        "by another key": (make(key=rsa.generate_private_key(65537, 2048)), False),
        "with an unknown key id": (make("strange", private), False),
        "for another algorithm than the key's": (signed(provider, base, "RS512"), False),
        "without a signature": (unsecured_jws("alice", now_s=time.time()).value, False),
        "signed with the public key": (jwt.encode(base, public, "HS256", headers={"kid": "first"}), False),
        "with critical extensions": (signed(provider, base, crit=["exp"], exp=1), False),
        "without claims": (signed(provider, {}), False),
        "with a payload that is not an object": (signed(provider, b"[]"), False),
        "with an expiry that is text": (signed(provider, base | {"exp": str(now_s + 600)}), False),
    }


def test_the_same_tokens_are_accepted(addresses: list[str], provider: IdentityProvider) -> None:
    expected, found = {}, {}
    for kind, (token, is_accepted) in tokens(provider).items():
        expected[kind] = [is_accepted, is_accepted or kind in ONLY_STOCK]
        found[kind] = [accepts(address, token) for address in addresses]
    assert found == expected


def accepts(address: str, token: str) -> bool:
    settings = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": lambda: token}
    try:
        with Admin(address, settings, security_protocol="SASL_PLAINTEXT") as admin:
            admin.describe_cluster()
    except AuthenticationFailed as error:
        return '{"status":"invalid_token"}' not in str(error)
    return True
