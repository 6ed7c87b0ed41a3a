"""Security settings: errors are raised when a client is created, with the setting's name and advice."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, read_options
from ottla.clients.security import Security, read_security
from ottla.network.errors import AuthenticationRefused, ConnectFailed
from ottla.network.sasl_settings import parse_jaas
from ottla.security.oauthbearer import OAuthBearerClient, OAuthToken, unsecured_jws
from ottla.security.plain import PlainClient
from ottla.security.scram import ScramClient
from tests import deadlines

SERVERS = {"bootstrap.servers": "localhost:9092"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def security(**settings: object) -> Security:
    return read_security(read_options(COMMON_OPTIONS, SERVERS | settings))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with its key, plain and encrypted, and an unrelated key."""
    directory = tmp_path_factory.mktemp("files")
    for name in ("one", "two"):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
        openssl(directory, "req", "-x509", *key, "-subj", f"/CN={name}", "-days", "2", "-out", f"{name}.crt")
    openssl(directory, "pkcs8", "-topk8", "-in", "one.key", "-out", "locked.key", "-passout", "pass:secret")
    openssl(
        directory, "pkcs12", "-export", "-in", "one.crt", "-inkey", "one.key", "-out", "one.p12", "-passout", "pass:x"
    )
    (directory / "one.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(40))
    (directory / "text.pem").write_text("certainly no certificate")
    return directory


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=30)


def exchange_of(found: Security) -> Any:
    assert found.sasl is not None

    async def one() -> Any:
        return await found.sasl()  # type: ignore[misc]

    return asyncio.run(one())


# -- valid settings ------------------------------------------------------------------------------------------------


def test_without_settings_there_is_neither_tls_nor_sasl() -> None:
    assert security() == Security(None, None)


def test_tls_verifies_certificates_and_host_names_by_default(files: Path) -> None:
    context = security(security_protocol="ssl").tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    loose = security(security_protocol="SSL", ssl_endpoint_identification_algorithm="").tls
    assert loose is not None
    assert (loose.verify_mode, loose.check_hostname) == (ssl.CERT_REQUIRED, False)
    mine = ssl.create_default_context()
    assert security(security_protocol="SSL", ssl_context=mine).tls is mine
    one = security(**{"security.protocol": "SSL", "ssl.ca.location": str(files / "one.crt")}).tls
    assert one is not None
    assert len(one.get_ca_certs()) == 1


def test_pem_without_line_breaks_is_read(files: Path) -> None:
    for between in (" ", "\\n"):
        text = (files / "one.crt").read_text().strip().replace("\n", between)
        tls = security(security_protocol="SSL", ssl_truststore_certificates=text).tls
        assert tls is not None
        assert len(tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}, PlainClient),
        ({"sasl.mechanisms": "scram-sha-256", "sasl.username": "a", "sasl.password": "b"}, ScramClient),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f'{SCRAM} username="a" password="b";'}, ScramClient),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": lambda: "abc"}, OAuthBearerClient),
    ],
)
def test_each_mechanism_has_its_sasl_client(settings: dict[str, object], kind: type) -> None:
    assert isinstance(exchange_of(security(**{"security.protocol": "SASL_SSL"}, **settings)), kind)


def test_jaas_config_may_be_quoted_as_in_java() -> None:
    line = f"""{SCRAM}\n  username='o\\'neil' password="a\\"b;c=d" tokenauth=true ;"""
    options = {"username": "o'neil", "password": 'a"b;c=d', "tokenauth": "true"}
    assert parse_jaas(line) == ("ScramLoginModule", options)


# -- invalid settings ---------------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, str], str]] = [
    ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
    ({"sasl.password": "hush"}, "sasl.password is set, but security.protocol is PLAINTEXT"),
    ({"ssl.ca.location": "{one.crt}"}, "which does not use it: set it to SSL$"),
    ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is missing"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "must be one of PLAIN, SCRAM"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.username"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}, "PLAIN needs sasl.password"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauth.token.provider"),
    (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} a=b;"},
        "PlainLoginModule",
    ),
    ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "username=hush"}, "not of the form"),
    ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "a.Krb5LoginModule required;"}, "has Krb5LoginModule"),
    ({"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"}, "'/no/such.pem' cannot be read: No such file"),
    (
        {"security.protocol": "SSL", "ssl.truststore.location": "{one.jks}"},
        r"keytool -list -rfc -keystore \S+one.jks > ",
    ),
    ({"security.protocol": "SSL", "ssl.keystore.location": "{one.jks}"}, r"-importkeystore .* && openssl pkcs12 -in"),
    ({"security.protocol": "SSL", "ssl.keystore.location": "{one.p12}"}, "ssl.keystore.password does not open it"),
    ({"security.protocol": "SSL", "ssl.keystore.type": "PKCS12"}, "ssl.keystore.type is PKCS12"),
    ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "ssl.truststore.type is JKS"),
    ({"security.protocol": "SSL", "ssl.truststore.password": "hush"}, "PEM has none"),
    ({"security.protocol": "SSL", "ssl.ca.location": "{text.pem}"}, "holds no PEM certificates"),
    ({"security.protocol": "SSL", "ssl.keystore.location": "{one.crt}"}, "with its private key"),
    (
        {"security.protocol": "SSL", "ssl.certificate.location": "{one.crt}", "ssl.key.location": "{two.key}"},
        "together",
    ),
    (
        {"security.protocol": "SSL", "ssl.certificate.location": "{one.crt}", "ssl.key.location": "{locked.key}"},
        "set ssl.key.p",
    ),
    (
        {
            "security.protocol": "SSL",
            "ssl.certificate.location": "{one.crt}",
            "ssl.key.location": "{locked.key}",
            "ssl.key.password": "hush",
        },
        "ssl.key.password does not open",
    ),
    ({"security.protocol": "SSL", "ssl.key.location": "{one.key}"}, "not the certificate that goes with it"),
    ({"security.protocol": "SSL", "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "given twice"),
    ({"security.protocol": "SSL", "ssl.ca.location": "{one.crt}", "ssl.ca.pem": "b"}, "choose one"),
    ({"security.protocol": "SSL", "ssl.context": "yes"}, "must be an ssl.SSLContext"),
    ({"ssl.ca.locaton": "x"}, "did you mean 'ssl.truststore.location'|did you mean 'ssl.ca.location'"),
]


def test_pkcs12_is_read_with_its_password(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = {"ssl.keystore.location": str(files / "one.p12"), "ssl.keystore.password": "x"}
    trusted = {"ssl.truststore.location": str(files / "one.p12"), "ssl.truststore.password": "x"}
    tls = security(**{"security.protocol": "SSL"}, **store, **trusted).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(
        ConfigurationError, match=r"pip install 'ottla\[security\]', or convert it.* openssl pkcs12 -in"
    ):
        security(**{"security.protocol": "SSL"}, **store)


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_invalid_setting_is_named_without_secrets(files: Path, settings: dict[str, str], message: str) -> None:
    given = {k: str(files / v[1:-1]) if v.startswith("{") else v for k, v in settings.items()}
    with pytest.raises(ConfigurationError, match=message) as caught:
        security(**given)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_encrypted_key_is_read_with_its_password(files: Path) -> None:
    pair = {"ssl.certificate.location": str(files / "one.crt"), "ssl.key.location": str(files / "locked.key")}
    assert security(**{"security.protocol": "SSL", "ssl.key.password": "secret"}, **pair).tls is not None


# -- tokens ----------------------------------------------------------------------------------------------------


def tokens(provider: Callable[[], Any]) -> Security:
    return security(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)


def test_many_connections_share_one_token_request() -> None:
    asked: list[int] = []

    def provider() -> OAuthToken:
        asked.append(1)
        return OAuthToken("abc", expires_at_ms=2**50)

    found = tokens(provider)

    async def story() -> None:
        assert found.sasl is not None
        await asyncio.gather(*(found.sasl() for _ in range(10)))

    asyncio.run(story())
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("result", "kind", "message"),
    [
        (ValueError("idp is down"), ConnectFailed, "gave no token.*idp is down"),
        (7, AuthenticationRefused, "returned a int"),
        ("two words", AuthenticationRefused, "characters that no bearer token has"),
    ],
)
def test_failing_token_provider_is_explained(result: object, kind: type[Exception], message: str) -> None:
    def provider() -> object:
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(kind, match=message):
        exchange_of(tokens(provider))


@pytest.fixture
def endpoint() -> Iterator[tuple[str, dict[str, Any]]]:
    """A token endpoint with a configurable response. It records the requests."""
    state: dict[str, Any] = {"status": 200, "body": b'{"access_token": "abc", "expires_in": 60}'}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state["requests"] = state.get("requests", 0) + 1
            state["form"] = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            state["user"] = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            self.send_response(state["status"])
            self.end_headers()
            self.wfile.write(state["body"])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token", state
    server.shutdown()
    deadlines.join(thread, "the token server")
    server.server_close()


def by_endpoint(url: str) -> Security:
    return security(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "me:too",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        }
    )


def test_token_is_requested_from_the_endpoint(endpoint: tuple[str, dict[str, Any]]) -> None:
    url, state = endpoint
    exchange = exchange_of(by_endpoint(url))
    assert exchange.start() == b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"
    assert state["form"] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert state["user"] == "me%3Atoo:hush"


@pytest.mark.parametrize(("lifetime_s", "requests"), [(600, 1), (0, 2)])
def test_token_is_reused_until_its_own_expiry(
    endpoint: tuple[str, dict[str, Any]], lifetime_s: int, requests: int
) -> None:
    url, state = endpoint
    token = unsecured_jws("ann", now_s=time.time(), lifetime_s=lifetime_s)
    state["body"] = json.dumps({"access_token": token.value, "expires_in": 600}).encode()
    found = by_endpoint(url)
    for _ in range(2):
        assert token.value.encode() in exchange_of(found).start()
    assert state["requests"] == requests


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (401, b'{"error":"invalid_client"}', AuthenticationRefused, "answered 401 .*invalid_client"),
        (503, b"later", ConnectFailed, "answered 503"),
        (200, b"<html>", AuthenticationRefused, "without an access_token"),
        (200, b'{"access_token": 7}', AuthenticationRefused, "without an access_token"),
    ],
)
def test_invalid_response_of_the_token_endpoint_is_explained(
    endpoint: tuple[str, dict[str, Any]], status: int, body: bytes, kind: type[Exception], message: str
) -> None:
    url, state = endpoint
    state |= {"status": status, "body": body}
    with pytest.raises(kind, match=message) as caught:
        exchange_of(by_endpoint(url))
    assert type(caught.value) is kind
    assert "hush" not in str(caught.value)


def test_unreachable_token_endpoint_is_a_retriable_error() -> None:
    with pytest.raises(ConnectFailed, match="does not answer") as caught:
        exchange_of(by_endpoint("http://127.0.0.1:1/token"))
    assert type(caught.value) is ConnectFailed
