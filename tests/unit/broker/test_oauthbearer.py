"""OAUTHBEARER on a listener: which settings select which validator."""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.oauthbearer import UNSECURED_HANDLER
from ottla.broker.sasl_mechanisms import prepared, sasl_listener
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig
from ottla.security.jwt import TokenRejected, ValidToken
from ottla.security.mechanism import Identity
from ottla.security.oauthbearer import OAuthBearerClient, OAuthToken, unsecured_jws
from tests.unit.security.test_jwt import NOW_S, public, rsa_key, token

from .harness import START_MS, BrokerHarness, open_harness

PREFIX = "listener.name.sasl"
HANDLER = f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class"
URL = f"{PREFIX}.sasl.oauthbearer.jwks.endpoint.url"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
HERE = "tests.unit.broker.test_oauthbearer"


def accept_bob(given: str) -> ValidToken:
    """A validator of an operator."""
    if given == "rejected":
        raise TokenRejected("it is not bob's")
    if given == "broken":
        raise RuntimeError(f"the secret is {given}")
    return "bob" if given == "wrong" else ValidToken("bob", START_MS + 1)  # type: ignore[return-value]


class Validator:
    """The same as a class."""

    def __call__(self, given: str) -> ValidToken:
        return accept_bob(given)


NOT_A_FUNCTION = 7


def start(harness: BrokerHarness) -> Any:
    """A new exchange on the listener."""
    return sasl_listener(harness.broker, harness.broker.settings.static, "SASL").mechanisms["OAUTHBEARER"].start()


@pytest.fixture
def key_file(tmp_path: Path) -> str:

    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [public(rsa_key())]}))
    return file.as_uri()


def problem_with(settings: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as problem:
        prepared(BrokerConfig(SETTINGS | settings), "SASL")
    return str(problem.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "OAUTHBEARER: sasl.oauthbearer.jwks.endpoint.url is missing"),
        ({URL: "ftp://idp/keys"}, "must begin with https://"),
        ({URL: "https://idp/keys", "sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "refresh.ms must be positive"),
        ({URL: "https://idp/keys", "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "0"}, "must be positive, and"),
        ({HANDLER: "no_such_module:validate"}, "cannot be loaded"),
        ({HANDLER: f"{HERE}:NOT_A_FUNCTION"}, "is not a function"),
        ({HANDLER: "com.example.MyHandler"}, "not an entry point of the group ottla.security"),
        (
            {HANDLER: UNSECURED_HANDLER, f"{PREFIX}.oauthbearer.sasl.jaas.config": (
                "OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs=soon;"
            )},
            "invalid literal",
        ),
        (
            {URL: "https://idp/keys", f"{PREFIX}.oauthbearer.sasl.jaas.config": "PlainLoginModule required;"},
            "needs OAuthBearerLoginModule",
        ),
    ],
)  # fmt: skip
def test_wrong_setting_is_an_error_that_names_it(settings: dict[str, str], expected: str) -> None:
    problem = problem_with(settings)
    assert problem.startswith("listener SASL: ")
    assert expected in problem


def test_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jwt" else find(name))
    assert "pip install 'ottla[security]'" in problem_with({URL: "https://idp/keys"})


def test_settings_are_read_without_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        assert name.partition(".")[0] not in {"jwt", "cryptography"}
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert [*prepared(BrokerConfig(SETTINGS | {URL: "https://idp/keys"}), "SASL")] == ["OAUTHBEARER"]


@pytest.mark.parametrize(
    "handler",
    [
        None,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    ],
)
def test_signed_token_is_verified_with_the_settings_of_the_listener(
    tmp_path: Path, key_file: str, handler: str | None
) -> None:
    settings = SETTINGS | {
        f"{PREFIX}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": key_file,
        f"{PREFIX}.sasl.oauthbearer.expected.audience": "other,kafka",
        f"{PREFIX}.sasl.oauthbearer.expected.issuer": "https://idp",
        f"{PREFIX}.sasl.oauthbearer.sub.claim.name": "email",
        "sasl.oauthbearer.clock.skew.seconds": "0",
    } | ({} if handler is None else {HANDLER: handler})  # fmt: skip

    async def scenario(harness: BrokerHarness) -> None:
        exchange = start(harness)
        claims = {"email": "a@b", "iat": NOW_S, "exp": NOW_S + 60}
        assert await answer(exchange, token(claims)) == b""
        assert exchange.identity == Identity("a@b", (NOW_S + 60) * 1000)
        for wrong in ({"aud": "orders"}, {"iss": "https://evil"}, {"email": ""}, {"exp": NOW_S}):
            assert await answer(start(harness), token(claims | wrong)) == b'{"status":"invalid_token"}'
        harness.broker.close()

    asyncio.run(with_harness(tmp_path / "data", settings, scenario))


async def with_harness(directory: Path, settings: dict[str, str], scenario: Any) -> None:
    directory.mkdir()
    loop = asyncio.get_running_loop()
    with open_harness(directory, settings) as harness:
        asyncio.events._set_running_loop(loop)
        await scenario(harness)


async def answer(exchange: Any, given: str) -> bytes:
    answered = exchange.answer(OAuthBearerClient(OAuthToken(given)).start())
    if isinstance(answered, Completion):
        done = asyncio.Event()
        answered.on_done(lambda _: done.set())
        await asyncio.wait_for(done.wait(), 10)
        return answered.result()  # type: ignore[no-any-return]
    return answered  # type: ignore[no-any-return]


def test_unsecured_tokens_are_accepted_only_if_it_is_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jaas = "OAuthBearerLoginModule required unsecuredValidatorRequiredScope=kafka;"
    settings = {HANDLER: UNSECURED_HANDLER, f"{PREFIX}.oauthbearer.sasl.jaas.config": jaas}
    with open_harness(tmp_path, SETTINGS | settings) as harness:
        given = unsecured_jws("alice", now_s=NOW_S, claims={"scope": "kafka"})
        exchange = start(harness)
        assert exchange.answer(OAuthBearerClient(given).start()) == b""
        assert exchange.identity == Identity("alice", given.expires_at_ms)
        given = unsecured_jws("alice", now_s=NOW_S)
        assert b"insufficient_scope" in start(harness).answer(OAuthBearerClient(given).start())
    assert "any client can log in as any user" in caplog.text


@pytest.mark.parametrize("name", ["accept_bob", "Validator"])
@pytest.mark.parametrize("setting", [HANDLER, f"{PREFIX}.sasl.oauthbearer.jwt.validator.class"])
def test_function_of_the_operator_validates_tokens_in_a_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str, name: str
) -> None:
    caplog.set_level("INFO")

    async def scenario(harness: BrokerHarness) -> None:
        exchange = start(harness)
        assert await answer(exchange, "any") == b""
        assert exchange.identity == Identity("bob", START_MS + 1)
        for wrong in ("rejected", "broken", "wrong"):
            assert await answer(start(harness), wrong) == b'{"status":"invalid_token"}'

    asyncio.run(with_harness(tmp_path / "data", SETTINGS | {setting: f"{HERE}:{name}"}, scenario))
    assert "it is not bob's" in caplog.text
    assert "it raised RuntimeError" in caplog.text
    assert "returned a str, not a ValidToken" in caplog.text
    assert "the secret is" not in caplog.text
