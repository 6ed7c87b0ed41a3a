"""`ottla security token` on a broker with SASL: tokens are created, used, listed, renewed and removed."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, AuthenticationFailed
from ottla.config import format_properties, load_properties
from tests.peers.secured import password_of

from .secured_ottla import SecuredOttla

Command = Callable[..., list[dict[str, object]]]
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    home = tmp_path_factory.mktemp("tokens")
    with SecuredOttla(home, {"delegation.token.secret.key": "a-key-of-this-test"}) as running:
        yield running


@pytest.fixture
def alice(ottla: SecuredOttla, tmp_path: Path) -> Path:
    """The properties file of alice."""
    path = tmp_path / "alice.properties"
    path.touch(0o600)
    path.write_text(
        format_properties(
            {
                "bootstrap.servers": ottla.address("SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{JAAS} username="alice" password="{password_of("alice")}";',
            }
        )
    )
    return path


@pytest.fixture
def token(alice: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a verb as alice, and return the objects that it prints."""

    def run(*words: str) -> list[dict[str, object]]:
        code = main(["security", "token", *words, "--json", "--command-config", str(alice)])
        done = capsys.readouterr()
        assert code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return run


def log_in(ottla: SecuredOttla, settings: dict[str, str]) -> None:
    address = {"bootstrap.servers": ottla.address("SASL_PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT"}
    with Admin({**address, **settings}) as admin:
        admin.describe_cluster()


def test_token_is_created_used_renewed_and_removed(ottla: SecuredOttla, token: Command, tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    [created] = token("create", "--write", str(file), "--renewer", "bob", "--max-lifetime", "2d")
    name = str(created["token"])
    assert created["owner"] == "User:alice"
    assert "sasl.jaas.config" not in created
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    log_in(ottla, load_properties(str(file)))
    [listed] = [each for each in token("list") if each["token"] == name]
    assert listed["renewers"] == ["User:bob"]
    assert listed["max"] == created["max"]
    [renewed] = token("renew", name, "--period", "12h")
    assert renewed["expires"] < listed["expires"]  # type: ignore[operator]
    assert token("remove", name, "--yes") == [{"token": name, "removed": True}]
    assert name not in [each["token"] for each in token("list")]
    with pytest.raises(AuthenticationFailed):
        log_in(ottla, load_properties(str(file)))


def test_settings_are_printed_without_a_file(ottla: SecuredOttla, token: Command) -> None:
    [created] = token("create")
    log_in(ottla, {name: str(created[name]) for name in ("sasl.mechanism", "sasl.jaas.config")})
    token("remove", str(created["token"]), "--yes")


def test_existing_file_stays_and_leaves_no_token(
    alice: Path, token: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = token("list")
    assert main(["security", "token", "create", "--write", str(alice), "--command-config", str(alice)]) == 1
    assert "File exists; the token is removed" in capsys.readouterr().err
    assert token("list") == before


def test_unknown_token_is_reported(alice: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["security", "token", "renew", "nothing", "--command-config", str(alice)]) == 1
    assert "there is no token nothing that you may see" in capsys.readouterr().err
