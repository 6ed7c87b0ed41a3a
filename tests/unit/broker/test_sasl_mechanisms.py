"""From the settings of a SASL listener to its mechanisms."""

from __future__ import annotations

import asyncio
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from ottla.broker import sasl_mechanisms
from ottla.broker.sasl_mechanisms import CALLBACK_SETTING, prepared, sasl_listener
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig
from ottla.network import plugins
from ottla.security.mechanism import AuthenticationError, Identity, SaslServer

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ALICE = f'{PLAIN_MODULE} required user_alice="hush";'
NO_KERBEROS = r"GSSAPI \(Kerberos\) is not supported"
PREFIX = "listener.name.inside"


def config(**settings: object) -> BrokerConfig:
    given = {name.replace("__", "-").replace("_", "."): str(value) for name, value in settings.items()}
    return BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            **given,
        }
    )


def plain(callback: str | None = None, jaas: str | None = ALICE, mechanisms: str = "PLAIN") -> BrokerConfig:
    settings = {"sasl.enabled.mechanisms": mechanisms}
    if jaas is not None:
        settings[f"{PREFIX}.plain.sasl.jaas.config"] = jaas
    if callback is not None:
        settings[f"{PREFIX}.plain.{CALLBACK_SETTING}"] = callback
    return BrokerConfig({**config().static, **settings})


def exchange(settings: BrokerConfig) -> SaslServer:
    return prepared(settings, "INSIDE")["PLAIN"](cast("Any", None))()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            config(),
            r"GSSAPI \(Kerberos\) is not supported: set sasl.enabled.mechanisms to some of PLAIN, SCRAM-SHA-256",
        ),
        (
            config(sasl_enabled_mechanisms="PLAIN,GSSAPI", sasl_jaas_config=ALICE),
            r"GSSAPI \(Kerberos\) is not supported",
        ),
        (config(sasl_enabled_mechanisms="plain"), "plain is not a known mechanism"),
        (config(sasl_enabled_mechanisms=""), "sasl.enabled.mechanisms is empty"),
        (config(sasl_enabled_mechanisms="PLAIN"), "PLAIN: sasl.jaas.config is missing"),
        (plain(jaas="hush"), "PLAIN: sasl.jaas.config is not of the form"),
        (
            plain(jaas='x.ScramLoginModule required user_a="hush";'),
            "has ScramLoginModule, but PLAIN needs PlainLoginModule",
        ),
        (plain("ottla.nothing:verify"), "cannot be loaded: No module named 'ottla.nothing'"),
        (plain("ottla.common.errors:verify"), "cannot be loaded: .* has no attribute 'verify'"),
        (plain("my.JavaClass"), "not an entry point of the group ottla.security and not of the form module:attribute"),
    ],
)
def test_invalid_settings(settings: BrokerConfig, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as error:
        prepared(settings, "INSIDE")
    assert str(error.value).startswith("listener INSIDE: ")
    assert "hush" not in str(error.value)


def test_module_that_cannot_be_imported_is_an_error_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_passwords_of_a_test.py").write_text("raise RuntimeError('no directory')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(KafkaError, match="broken_passwords_of_a_test:verify cannot be loaded: no directory"):
        prepared(plain("broken_passwords_of_a_test:verify"), "INSIDE")


def test_settings_of_the_listener_and_of_the_mechanism_come_first() -> None:
    bob = ALICE.replace("alice", "bob")
    settings = BrokerConfig(
        {
            **config(sasl_enabled_mechanisms="SCRAM-SHA-512", sasl_jaas_config=bob).static,
            f"{PREFIX}.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            f"{PREFIX}.plain.sasl.jaas.config": ALICE,
            f"{PREFIX}.plain.connections.max.reauth.ms": "5000",
            "connections.max.reauth.ms": "7000",
            "sasl.server.max.receive.size": "4096",
            "connection.failed.authentication.delay.ms": "5",
        }
    )
    listener = sasl_listener(cast("Any", None), settings, "INSIDE")
    assert {name: each.max_reauth_ms for name, each in listener.mechanisms.items()} == {
        "SCRAM-SHA-256": 7000,
        "PLAIN": 5000,
    }
    assert (listener.max_receive_bytes, listener.failed_delay_ms) == (4096, 5)
    server = listener.mechanisms["PLAIN"].start()
    assert server.answer(b"\0alice\0hush") == b""
    assert server.identity == Identity("alice")


def test_name_of_kafkas_callback_handler_is_accepted() -> None:
    server = exchange(plain(sasl_mechanisms.KAFKAS_PLAIN_CALLBACK))
    assert server.answer(b"\0alice\0hush") == b""


# -- passwords that a Python function checks --------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module in which a test puts its functions."""
    made = ModuleType("passwords_of_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def log_in(verify: object, module: Any) -> tuple[SaslServer, Completion[bytes]]:
    module.verify = verify
    server = exchange(plain("passwords_of_a_test:verify", jaas=None))

    async def story() -> Completion[bytes]:
        answer = server.answer(b"\0alice\0hush")
        assert isinstance(answer, Completion)
        done = asyncio.Event()
        answer.on_done(lambda _: done.set())
        await asyncio.wait_for(done.wait(), 10)
        return answer

    return server, asyncio.run(story())


def test_function_checks_passwords_in_a_thread(module: Any) -> None:
    def verify(username: str, password: str) -> bool:
        time.sleep(0.01)
        return (username, password) == ("alice", "hush")

    server, answer = log_in(verify, module)
    assert answer.result() == b""
    assert server.identity == Identity("alice")


def test_function_may_be_an_entry_point(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module.verify = lambda _username, _password: True
    entry = EntryPoint("directory", "passwords_of_a_test:verify", plugins.GROUP)

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        return [entry] if (group, name) == (plugins.GROUP, "directory") else []

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    assert plugins.load(CALLBACK_SETTING, "directory") is module.verify
    prepared(plain("directory", jaas=None), "INSIDE")
    with pytest.raises(KafkaError, match="not an entry point of the group"):
        prepared(plain("other", jaas=None), "INSIDE")


def test_class_is_created_once(module: Any) -> None:
    class Passwords:
        def __call__(self, username: str, password: str) -> bool:
            return (username, password) == ("alice", "hush")

    assert log_in(Passwords, module)[1].result() == b""


@pytest.mark.parametrize("answer", [False, None, 1, "yes"])
def test_only_true_is_a_right_password(module: Any, answer: object) -> None:
    server, refused = log_in(lambda _name, _password: answer, module)
    assert isinstance(refused.error, AuthenticationError)
    assert str(refused.error) == "Authentication failed: Invalid username or password"
    assert server.identity is None


def test_function_that_raises_refuses_the_log_in(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    def verify(username: str, password: str) -> bool:
        raise RuntimeError(f"{username} and {password} are not in the directory")

    server, refused = log_in(verify, module)
    assert str(refused.error) == "Authentication failed: credentials for user could not be verified"
    assert server.identity is None
    assert "raised RuntimeError" in caplog.text
    assert "hush" not in caplog.text


def test_function_has_a_deadline(
    module: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugins, "TIMEOUT_S", 0.01)

    def verify(_username: str, _password: str) -> bool:
        time.sleep(0.2)
        return True

    server, refused = log_in(verify, module)
    assert str(refused.error) == "Authentication failed: credentials for user could not be verified"
    assert server.identity is None
    assert "no result within 0.01 s" in caplog.text
