"""How a client gets its OAuth token: by which grant, with which assertion, or from a file. KIP-768, 1139."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.clients.errors import ConfigurationError
from ottla.clients.options import SECURITY_OPTIONS, read_options
from ottla.clients.security import read_security
from ottla.network.errors import AuthenticationRefused, ConnectFailed
from tests.identity_provider import CLIENT, SECRET, IdentityProvider

PREFIX = "sasl.oauthbearer"
RETRIEVER = "org.apache.kafka.common.security.oauthbearer."


@pytest.fixture(scope="module")
def server() -> Iterator[IdentityProvider]:
    with IdentityProvider() as server:
        yield server


@pytest.fixture
def provider(server: IdentityProvider) -> IdentityProvider:
    server.forms.clear()
    server.refuses = False
    return server


def source(settings: dict[str, object]) -> Any:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **settings}
    security = read_security(read_options(SECURITY_OPTIONS, given))
    assert security.sasl is not None
    return security.sasl


def token_of(settings: dict[str, object]) -> str:
    """The token that the client sends."""
    exchange = asyncio.run(source(settings)())
    return exchange.start().decode().split("\x01")[1].removeprefix("auth=Bearer ")  # type: ignore[no-any-return]


def pem(key: Any, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    encoded: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return encoded


@pytest.fixture
def signing(tmp_path: Path, provider: IdentityProvider) -> tuple[dict[str, object], Any]:
    """Settings that sign assertions, and the public key that verifies them."""
    key = rsa.generate_private_key(65537, 2048)
    file, template = tmp_path / "key.pem", tmp_path / "template.json"
    file.write_bytes(pem(key))
    template.write_text(json.dumps({"header": {"kid": "7"}, "payload": {"tenant": "a", "sub": "from the template"}}))
    settings = {
        f"{PREFIX}.token.endpoint.url": f"{provider.url}/token",
        f"{PREFIX}.assertion.private.key.file": str(file),
        f"{PREFIX}.assertion.template.file": str(template),
        f"{PREFIX}.assertion.claim.iss": "me",
        f"{PREFIX}.assertion.claim.aud": "idp",
        f"{PREFIX}.assertion.claim.sub": "service",
        f"{PREFIX}.assertion.claim.jti.include": "true",
        f"{PREFIX}.scope": "kafka",
    }
    return settings, key.public_key()


def test_client_credentials_with_a_secret(provider: IdentityProvider) -> None:
    settings = {
        f"{PREFIX}.token.endpoint.url": f"{provider.url}/token",
        f"{PREFIX}.client.credentials.client.id": CLIENT,
        f"{PREFIX}.client.credentials.client.secret": SECRET,
    }
    assert token_of(settings).count(".") == 2
    assert provider.forms == [{"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": SECRET}]


def test_jwt_bearer_grant_sends_a_signed_assertion(
    provider: IdentityProvider, signing: tuple[dict[str, object], Any]
) -> None:
    settings, key = signing
    token_of(settings | {f"{PREFIX}.jwt.retriever.class": f"{RETRIEVER}JwtBearerJwtRetriever"})
    [form] = provider.forms
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["scope"] == "kafka"
    claims = jwt.decode(form["assertion"], key, ["RS256"], audience="idp", issuer="me")
    assert (claims["sub"], claims["tenant"]) == ("service", "a")
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"], len(claims["jti"])) == (300, 60, 36)
    assert jwt.get_unverified_header(form["assertion"])["kid"] == "7"


def test_client_credentials_with_an_assertion_in_place_of_a_secret(
    provider: IdentityProvider, signing: tuple[dict[str, object], Any]
) -> None:
    settings, key = signing
    token_of(settings | {f"{PREFIX}.client.credentials.client.id": CLIENT})
    [form] = provider.forms
    assert (form["grant_type"], form["client_id"]) == ("client_credentials", CLIENT)
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert "client_secret" not in form
    jwt.decode(form["client_assertion"], key, ["RS256"], audience="idp")


def test_encrypted_key_of_a_curve_signs_assertions(
    provider: IdentityProvider, signing: tuple[dict[str, object], Any], tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "ec.pem"
    file.write_bytes(pem(key, b"hush"))
    settings = signing[0] | {
        f"{PREFIX}.assertion.private.key.file": str(file),
        f"{PREFIX}.assertion.private.key.passphrase": "hush",
        f"{PREFIX}.assertion.algorithm": "ES256",
        f"{PREFIX}.jwt.retriever.class": "JwtBearerJwtRetriever",
    }
    token_of(settings)
    jwt.decode(provider.forms[0]["assertion"], key.public_key(), ["ES256"], audience="idp")
    with pytest.raises(ConfigurationError, match=r"private\.key\.file") as problem:
        source(settings | {f"{PREFIX}.assertion.private.key.passphrase": "wrong-secret"})
    assert "wrong-secret" not in str(problem.value)


def test_assertion_of_a_file_is_read_for_each_token(
    provider: IdentityProvider, tmp_path: Path, signing: tuple[dict[str, object], Any]
) -> None:
    file = tmp_path / "assertion"
    settings = signing[0] | {
        f"{PREFIX}.assertion.file": str(file),
        f"{PREFIX}.jwt.retriever.class": "JwtBearerJwtRetriever",
    }
    for text in ("one.two.three", "four.five.six"):
        file.write_text(f"{text}\n")
        token_of(settings)
    assert [form["assertion"] for form in provider.forms] == ["one.two.three", "four.five.six"]


def test_token_of_a_file_is_sent_and_replaced_with_the_file(provider: IdentityProvider, tmp_path: Path) -> None:
    file = tmp_path / "a token"
    tokens = source({f"{PREFIX}.token.endpoint.url": file.as_uri()})

    async def sent() -> str:
        return (await tokens()).start().decode()  # type: ignore[no-any-return]

    async def scenario() -> None:
        with pytest.raises(ConnectFailed, match="cannot be read"):
            await sent()
        file.write_text("first\n")
        assert "auth=Bearer first\x01" in await sent()
        file.write_text(provider.token())
        with_expiry = await sent()
        file.write_text("later")
        assert await sent() == with_expiry  # it is valid for a while
        file.write_text("x" * 300_000)

    asyncio.run(scenario())
    with pytest.raises(AuthenticationRefused, match="it is not a token"):
        token_of({f"{PREFIX}.token.endpoint.url": file.as_uri()})


def test_refused_assertion_is_an_error_without_the_assertion(
    provider: IdentityProvider, signing: tuple[dict[str, object], Any]
) -> None:
    provider.refuses = True
    with pytest.raises(AuthenticationRefused, match="answered 401") as refused:
        token_of(signing[0] | {f"{PREFIX}.jwt.retriever.class": "JwtBearerJwtRetriever"})
    assert provider.forms[0]["assertion"] not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({f"{PREFIX}.token.endpoint.url": "ftp://idp"}, "must be an http"),
        ({f"{PREFIX}.token.endpoint.url": "http://idp"}, "client.credentials.client.id and .secret"),
        (
            {f"{PREFIX}.token.endpoint.url": "http://idp", f"{PREFIX}.jwt.retriever.class": "com.example.Mine"},
            "must be one of DefaultJwtRetriever",
        ),
        (
            {f"{PREFIX}.token.endpoint.url": "http://idp", f"{PREFIX}.jwt.retriever.class": "FileJwtRetriever"},
            "which FileJwtRetriever does not support",
        ),
        (
            {f"{PREFIX}.token.endpoint.url": "file:///t", f"{PREFIX}.jwt.retriever.class": "JwtBearerJwtRetriever"},
            "which JwtBearerJwtRetriever does not support",
        ),
        (
            {f"{PREFIX}.token.endpoint.url": "http://idp", f"{PREFIX}.jwt.retriever.class": "JwtBearerJwtRetriever"},
            "an assertion needs",
        ),
        (
            {
                f"{PREFIX}.token.endpoint.url": "http://idp",
                f"{PREFIX}.assertion.claim.iss": "me",
                f"{PREFIX}.assertion.private.key.file": "/no/such/file",
            },
            "No such file",
        ),
    ],
)
def test_wrong_setting_is_an_error_that_names_it(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        source(settings)


@pytest.mark.parametrize("template", ["", "[]", '{"header": 7}', '{"payload": []}'])
def test_malformed_template_is_an_error(signing: tuple[dict[str, object], Any], tmp_path: Path, template: str) -> None:
    file = tmp_path / "malformed.json"
    file.write_text(template)
    with pytest.raises(ConfigurationError, match=r"template\.file"):
        source(signing[0] | {f"{PREFIX}.assertion.template.file": str(file)})
