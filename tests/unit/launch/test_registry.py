"""The settings of `ottla registry serve`, from its options, its file and the connection."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.cli.main import main
from ottla.launch.companions import console_words, registry_words
from ottla.launch.registry import _given

CONNECTION = {"bootstrap.servers": "127.0.0.1:9092", "client.id": "ottla-cli", "sasl.mechanism": "PLAIN"}


def options(**given: object) -> SimpleNamespace:
    defaults = {"config": None, "bootstrap_server": None, "listen": None, "insecure": False, "access_log": False}
    return SimpleNamespace(**{**defaults, "overrides": (), **given})


def test_options_override_the_connection() -> None:
    given = _given(
        options(listen="8090", insecure=True, access_log=True, overrides=("kafkastore.topic=t",)), CONNECTION
    )
    assert given == {
        "kafkastore.bootstrap.servers": "127.0.0.1:9092",
        "kafkastore.sasl.mechanism": "PLAIN",
        "kafkastore.topic": "t",
        "listeners": "http://127.0.0.1:8090",
        "ottla.insecure": "true",
        "ottla.access.log": "true",
    }


def test_brokers_of_the_file_are_used_unless_the_command_line_names_others(tmp_path: Path) -> None:
    path = tmp_path / "registry.properties"
    path.write_text("kafkastore.bootstrap.servers=kafka:9092\nlisteners=https://a:1\n")
    assert _given(options(config=str(path)), CONNECTION)["kafkastore.bootstrap.servers"] == "kafka:9092"
    named = _given(options(config=str(path), bootstrap_server="b:1"), CONNECTION | {"bootstrap.servers": "b:1"})
    assert named["kafkastore.bootstrap.servers"] == "b:1"
    assert named["listeners"] == "https://a:1"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-X", "kafkastore.topik=t"], "unknown setting kafkastore.topik\n       Did you mean kafkastore.topic?"),
        (["--listen", "0.0.0.0:0"], "would be open to other machines without authentication"),
        (["--listen", "https://127.0.0.1:0"], "TLS needs a certificate"),
        (["-X", "authentication.method=BASIC"], "users log in at the broker with SASL"),
    ],
)
def test_wrong_words_are_explained(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "serve", "--listen", "0", *words]) == 2
    assert problem in capsys.readouterr().err


def test_secured_companions_have_no_secret_on_their_command_lines() -> None:
    words = registry_words("127.0.0.1:0", Path("/d"))
    assert words[2:6] == ["--listen", "https://127.0.0.1:0", "--command-config", "/d/admin.properties"]
    assert not any("password" in word for word in [*words, *console_words("8083", "8081", Path("/d"))])


@pytest.mark.parametrize(
    ("registry", "secure", "url"),
    [
        (None, False, None),
        ("127.0.0.1:0", False, None),
        ("127.0.0.1:8081", False, "http://127.0.0.1:8081"),
        ("8081", False, "http://127.0.0.1:8081"),
        ("127.0.0.1:8081", True, "https://127.0.0.1:8081"),
    ],
)
def test_console_shows_the_registry_beside_it(registry: str | None, secure: bool, url: str | None) -> None:
    words = console_words("127.0.0.1:8083", registry, Path("/d") if secure else None)
    assert (words[words.index("--registry") + 1] if "--registry" in words else None) == url
