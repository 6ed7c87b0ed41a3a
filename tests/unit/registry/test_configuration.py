"""The settings of a registry."""

from __future__ import annotations

import pytest

from ottla.common.failure import Failure
from ottla.registry.configuration import read_settings
from ottla.web.listeners import Address

STORE = {"kafkastore.bootstrap.servers": "PLAINTEXT://a:1,b:2"}


def test_settings_of_confluent() -> None:
    settings = read_settings(
        {
            **STORE,
            "listeners": "http://0.0.0.0:8081,https://0.0.0.0:8082",
            "kafkastore.topic": "_other",
            "kafkastore.topic.config.segment.bytes": "1000000",
            "kafkastore.security.protocol": "SASL_SSL",
            "kafkastore.sasl.mechanism": "PLAIN",
            "kafkastore.sasl.jaas.config": 'PlainLoginModule required username="a" password="b";',
            "ottla.login.bootstrap.servers": "c:3",
            "schema.registry.group.id": "group",
            "master.eligibility": "false",
            "host.name": "node",
            "inter.instance.protocol": "https",
            "authentication.method": "BASIC",
            "authentication.realm": "ignored",
            "ssl.keystore.location": "/k.pem",
            "super.users": "User:a;User:b",
        }
    )
    bound = list(settings.listeners)
    assert settings.identity(settings.listener_for_nodes(bound)).url == "https://node:8082"
    assert not settings.identity(bound[0]).eligible
    assert settings.log.topic.name == "_other"
    assert settings.log.topic.config == {"segment.bytes": "1000000"}
    assert settings.log.clients["bootstrap.servers"] == "PLAINTEXT://a:1,b:2"
    assert settings.log.transactional_id == "group-_other"
    assert settings.login.clients["bootstrap.servers"] == "c:3"
    assert (settings.login.mechanism, settings.login.methods) == ("PLAIN", {"BASIC"})
    assert settings.tls == {"ssl.keystore.location": "/k.pem"}
    assert settings.super_users == {"User:a", "User:b"}


def test_defaults() -> None:
    settings = read_settings(STORE)
    assert settings.listeners == (Address("127.0.0.1", 8081),)
    assert not settings.authenticates
    assert settings.values["schema_compatibility_level"] == "BACKWARD"
    assert settings.identity(settings.listeners[0]).url == "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kafkastore.topik": "a"}, "unknown setting kafkastore.topik"),
        ({"listenrs": "a"}, "unknown setting listenrs"),
        ({"listeners": "ftp://a:1"}, "begins with neither"),
        ({"schema.compatibility.level": "SIDEWAYS"}, "must be one of"),
        ({"kafkastore.security.protocol": "TLS"}, "must be one of"),
        ({"ottla.rules.file": "rules.json"}, "ottla.rules.file needs users"),
        ({"kafkastore.bootstrap.servers": ""}, "kafkastore.bootstrap.servers is empty"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(Failure, match=problem) as failure:
        read_settings(STORE | given)
    assert failure.value.exit_code == 2


def test_unknown_setting_has_a_suggestion() -> None:
    with pytest.raises(Failure) as failure:
        read_settings(STORE | {"kafkastore.topik": "a"})
    assert failure.value.advice == ("Did you mean kafkastore.topic?",)


def test_missing_listener_for_other_nodes_is_named() -> None:
    settings = read_settings(STORE | {"inter.instance.protocol": "https"})
    with pytest.raises(Failure, match="no listener has it"):
        settings.listener_for_nodes(list(settings.listeners))
