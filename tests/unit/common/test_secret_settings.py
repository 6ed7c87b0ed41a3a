"""Values of settings that pages, commands and messages hide."""

from __future__ import annotations

import pytest

from ottla.common.secret_settings import has_secret_name, shown_value


@pytest.mark.parametrize(
    "name",
    [
        "value.converter.basic.auth.user.info",
        "key.converter.bearer.auth.token",
        "value.converter.ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "producer.override.sasl.jaas.config",
        "http.headers.Authorization",
        "session_cookie",
        "ssh.private-key",
        "API_KEY",
        "aws.access.key.id",
        "key.passphrase",
    ],
)
def test_settings_with_secret_words_are_secret(name: str) -> None:
    assert has_secret_name(name)


@pytest.mark.parametrize("name", ["key.converter", "value.converter.schemas.enable", "topic", "transforms.key.type"])
def test_other_settings_are_not_secret(name: str) -> None:
    assert not has_secret_name(name)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hunter2", "***"),
        ("${env:NAME}:hunter2", "***"),
        ("${env:NAME}", "${env:NAME}"),
        ("${env:NAME}:${file:/etc/login:password}", "${env:NAME}:${file:/etc/login:password}"),
        ("", ""),
    ],
)
def test_secret_is_shown_only_as_references(value: str, shown: str) -> None:
    assert shown_value(value, "***", is_secret=True) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://ann:hunter2@one:80,http://ann:hunter2@two/x", "http://ann:***@one:80,http://ann:***@two/x"),
        (
            "jdbc:postgresql://db/x?user=ann&password=hunter2&ssl=true",
            "jdbc:postgresql://db/x?user=ann&password=***&ssl=true",
        ),
        ("http://host:8081/a@b", "http://host:8081/a@b"),
    ],
)
def test_passwords_in_urls_are_hidden(value: str, shown: str) -> None:
    assert shown_value(value, "***", is_secret=False) == shown
