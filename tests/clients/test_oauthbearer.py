"""Log-ins with tokens of an authorization server: third-party clients, Ottla's clients, and attackers. KIP-255, 768."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.clients import Admin, AuthenticationFailed, Consumer, Producer
from ottla.security.oauthbearer import OAuthToken, expiry_of, unsecured_jws
from tests.identity_provider import AUDIENCE, CLIENT, ISSUER, SECRET, IdentityProvider

from .secured_ottla import SecuredOttla
from .support import WAIT_S, unique, wait_until


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


def oauth_settings(provider: IdentityProvider) -> dict[str, str]:
    """The settings of a broker for tokens of the provider."""
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[SecuredOttla]:
    """A running broker that accepts tokens of the provider."""
    ottla = SecuredOttla(tmp_path_factory.mktemp("oauth"), oauth_settings(provider))
    ottla.start()
    yield ottla
    assert ottla.stop() == 0
    ottla.assert_no_traceback()


def settings(ottla: SecuredOttla, given: Mapping[str, object]) -> dict[str, object]:
    return {
        "bootstrap.servers": ottla.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        **given,
    }


def by_endpoint(provider: IdentityProvider) -> dict[str, object]:
    return {
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka",
    }


def log_in(ottla: SecuredOttla, token: str) -> None:
    """Log in with the token once. Raises AuthenticationFailed."""
    with Admin(settings(ottla, {"sasl.oauth.token.provider": lambda: token})) as admin:
        admin.describe_cluster()


# -- Ottla's clients -------------------------------------------------------------------------------------------


def test_ottla_clients_get_their_tokens_from_the_endpoint(ottla: SecuredOttla, provider: IdentityProvider) -> None:
    given, topic = settings(ottla, by_endpoint(provider)), unique("oauth")
    provider.forms.clear()
    with Admin(given) as admin:
        admin.create_topic(topic, partitions=1)
    with Producer(given) as producer:
        producer.send(topic, b"x").result(WAIT_S)
    with Consumer({**given, "auto.offset.reset": "earliest", "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        assert next(iter(consumer)).value == b"x"
    assert provider.forms[0] == {
        "grant_type": "client_credentials", "scope": "kafka", "client_id": CLIENT, "client_secret": SECRET,
    }  # fmt: skip


def test_session_ends_with_the_token_and_is_renewed_without_an_error(
    ottla: SecuredOttla, provider: IdentityProvider
) -> None:
    topic, count = unique("oauth"), 0

    def short_token() -> OAuthToken:
        nonlocal count
        count += 1
        # Brokers accept a new log-in at most once per second.
        token = provider.token(exp=int(time.time()) + 3)
        return OAuthToken(token, expiry_of(token))

    with Producer(settings(ottla, {"sasl.oauth.token.provider": short_token})) as producer:
        producer.send(topic, b"0").result(WAIT_S)

        def has_renewed() -> bool:
            producer.send(topic, b"x").result(WAIT_S)
            return count >= 3

        wait_until(has_renewed, "the session was renewed twice")


# -- third-party clients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["oidc", "callback"])
def test_librdkafka_logs_in(ottla: SecuredOttla, provider: IdentityProvider, method: str) -> None:
    given = settings(ottla, {}) | {"log_level": 2}
    if method == "oidc":
        given |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
        }
    else:
        given |= {"oauth_cb": lambda _: (provider.token(), time.time() + 600)}
    topic = unique("oauth")
    producer = confluent_kafka.Producer(given)
    failures: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]
    admin = AdminClient(given)
    admin.poll(0)
    assert topic in admin.list_topics(timeout=WAIT_S).topics


def test_kafka_python_logs_in(ottla: SecuredOttla, provider: IdentityProvider) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provider.token()

    producer = kafka_python.KafkaProducer(
        bootstrap_servers=ottla.address("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    try:
        assert producer.send(unique("oauth"), b"x").get(WAIT_S).offset == 0
    finally:
        producer.close(WAIT_S)


def test_aiokafka_logs_in(ottla: SecuredOttla, provider: IdentityProvider) -> None:
    class Tokens(AiokafkaProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provider.token()

    async def scenario() -> None:
        given: dict[str, Any] = {
            "bootstrap_servers": ottla.address("SASL_PLAINTEXT"),
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Tokens(),
        }
        async with aiokafka.AIOKafkaProducer(**given) as producer:
            sent = await asyncio.wait_for(producer.send_and_wait(unique("oauth"), b"x"), WAIT_S)
            assert sent.offset == 0

    asyncio.run(scenario())


# -- attacks ---------------------------------------------------------------------------------------------------

WRONG: dict[str, Callable[[IdentityProvider], str]] = {
    "expired": lambda provider: provider.token(iat=int(time.time()) - 900, exp=int(time.time()) - 300),
    "not valid yet": lambda provider: provider.token(nbf=int(time.time()) + 300),
    "of another audience": lambda provider: provider.token(aud="orders"),
    "of another issuer": lambda provider: provider.token(iss="https://evil.example"),
    "without an audience": lambda provider: provider.token(aud=None),
    "by another key": lambda provider: provider.token(key=rsa.generate_private_key(65537, 2048)),
    "with an unknown key id": lambda provider: provider.token("strange", provider.keys["first"]),
    "without a signature": lambda _: unsecured_jws("alice", now_s=time.time()).value,
    "huge": lambda provider: provider.token(groups=["x" * 100] * 600),
    "without a user": lambda provider: provider.token(sub=""),
    "not a token": lambda _: "abc",
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_token_is_rejected_and_the_log_says_why(
    ottla: SecuredOttla, provider: IdentityProvider, kind: str
) -> None:
    token, before = WRONG[kind](provider), ottla.log_size()

    def is_reported() -> bool:
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            log_in(ottla, token)
        return "Rejected an OAUTHBEARER token: " in ottla.log_tail(before)

    wait_until(is_reported, "the reason is logged, which happens ten times per second at most")
    log = ottla.log_tail(before)
    assert token[-60:] not in log
    assert SECRET not in log
    log_in(ottla, provider.token())


def test_new_key_of_the_provider_is_accepted_at_the_first_log_in(tmp_path: Path, provider: IdentityProvider) -> None:
    with SecuredOttla(tmp_path, oauth_settings(provider)) as ottla:
        log_in(ottla, provider.token())
        provider.keys["second"] = rsa.generate_private_key(65537, 2048)
        log_in(ottla, provider.token("second"))


def test_no_client_logs_in_without_keys_and_all_do_when_the_provider_is_back(tmp_path: Path) -> None:
    provider = IdentityProvider()  # it is bound, but does not answer before it is entered
    with SecuredOttla(tmp_path, oauth_settings(provider) | {"sasl.login.read.timeout.ms": "200"}) as ottla:
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            log_in(ottla, provider.token())
        assert "No client can log in with OAUTHBEARER until then" in ottla.log_tail()
        with provider:

            def is_back() -> bool:
                try:
                    log_in(ottla, provider.token())
                except AuthenticationFailed:
                    return False
                return True

            wait_until(is_back, "the keys are there")
