"""Listeners: their protocols, and settings that apply to one listener."""

from __future__ import annotations

import pytest

from ottla.cluster.node.registration import controller_registration, registration
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig, ConfigError, ConfigSource, SecurityProtocol, check_broker, resolve_broker
from ottla.config.listener_settings import base_name

FOUR = {
    "listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2,INSIDE://127.0.0.1:3,OUTSIDE://127.0.0.1:4,C://127.0.0.1:5",
    "listener.security.protocol.map": "plaintext:plaintext,SSL:SSL,INSIDE:SASL_PLAINTEXT, OUTSIDE : SASL_SSL,C:SSL",
    "controller.listener.names": "C",
}


def test_each_listener_has_the_protocol_of_the_map() -> None:
    config = BrokerConfig(FOUR)
    assert [each.protocol for each in config.listeners] == [0, 1, 2, 3]
    assert [each.protocol.uses_tls for each in config.listeners] == [False, True, False, True]
    assert [each.protocol.uses_sasl for each in config.listeners] == [False, False, True, True]
    assert config.security_protocol("c") == SecurityProtocol.SSL
    with pytest.raises(KeyError):
        config.security_protocol("OTHER")


def test_registrations_have_the_protocol_of_each_endpoint() -> None:
    config = BrokerConfig(FOUR)
    request = registration(config, "cluster", config.advertised, [_directory()], ())  # type: ignore[list-item]
    assert {each.name: each.security_protocol for each in request.listeners} == {
        "PLAINTEXT": 0,
        "SSL": 1,
        "INSIDE": 2,
        "OUTSIDE": 3,
    }
    controllers = BrokerConfig({**FOUR, "listeners": "PLAINTEXT://:1,C://localhost:2"}).advertised_controllers
    assert [each.security_protocol for each in controller_registration(1, controllers).listeners] == [1]


def _directory() -> object:
    class Directory:
        directory_id = bytes(16)
        broker_epoch = -1

    return Directory()


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        ({}, "PLAINTEXT"),
        ({"inter.broker.listener.name": "inside"}, "INSIDE"),
        ({"security.inter.broker.protocol": "SSL"}, "SSL"),
    ],
)
def test_listener_between_brokers_is_chosen_by_name_or_protocol(chosen: dict[str, str], name: str) -> None:
    assert BrokerConfig({**FOUR, **chosen}).inter_broker_listener == name


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.inside.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.inside.max.connections", "max.connections"),
        ("listener.name.inside.scram-sha-256.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.inside.plain.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listener.name.inside.connections.max.idle.ms", None),
        ("listener.name.INSIDE.ssl.keystore.location", None),
        ("listener.name.inside.ssl.unknown", None),
        ("ssl.keystore.location", None),
    ],
)
def test_names_of_listener_settings(name: str, base: str | None) -> None:
    assert base_name(name) == base


def test_listener_setting_overrides_the_setting_of_the_broker() -> None:
    config = BrokerConfig(
        {
            **FOUR,
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "listener.name.outside.ssl.client.auth": "none",
            "listener.name.outside.max.connections": "7",
            "listener.name.outside.plain.sasl.jaas.config": "one",
            "listener.name.outside.sasl.jaas.config": "two",
        }
    )
    outside, inside = config.for_listener("OUTSIDE"), config.for_listener("INSIDE")
    assert (outside.text("ssl.client.auth"), inside.text("ssl.client.auth")) == ("none", "required")
    assert outside.text("ssl.keystore.type") == "PEM"
    assert outside.int("max.connections") == 7
    assert inside.int("max.connections") == config.int("max.connections") > 7
    assert outside.text("sasl.jaas.config") == "two"
    assert config.for_listener("OUTSIDE", "PLAIN").text("sasl.jaas.config") == "one"
    assert config.for_listener("OUTSIDE", "SCRAM-SHA-256").text("sasl.jaas.config") == "two"


def test_dynamic_listener_setting_wins_over_the_file_and_is_described() -> None:
    name, password = "listener.name.ssl.ssl.keystore.location", "listener.name.ssl.ssl.key.password"
    static = BrokerConfig({**FOUR, name: "/old.pem", "ssl.keystore.location": "/base.pem", password: "secret"})
    dynamic = {name: "/new.pem"}
    changed = static.with_dynamic(dynamic, {})
    assert changed.for_listener("SSL").text("ssl.keystore.location") == "/new.pem"
    assert static.for_listener("SSL").text("ssl.keystore.location") == "/old.pem"
    assert changed.for_listener("INSIDE").text("ssl.keystore.location") == "/base.pem"
    described = resolve_broker(dynamic, {}, static)
    assert (described[name].text, described[name].source) == ("/new.pem", ConfigSource.DYNAMIC_BROKER)
    assert [(each.name, each.text) for each in described[name].synonyms] == [
        (name, "/new.pem"),
        (name, "/old.pem"),
        ("ssl.keystore.location", "/base.pem"),
    ]
    assert described[password].text is None
    assert described[password].is_sensitive


def test_dynamic_listener_settings_have_the_scope_of_kafka() -> None:
    check_broker({"listener.name.ssl.ssl.keystore.location": "/new.pem"}, cluster_wide=False)
    check_broker({"listener.name.ssl.max.connections": "5"}, cluster_wide=True)
    with pytest.raises(KafkaError, match="broker id must be specified"):
        check_broker({"listener.name.ssl.ssl.keystore.location": "/new.pem"}, cluster_wide=True)


NODES = {
    "listeners": "INSIDE://127.0.0.1:1,CONTROL://127.0.0.1:2",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,CONTROL:SASL_PLAINTEXT",
    "controller.listener.names": "CONTROL",
    "controller.quorum.voters": "1@127.0.0.1:2",
    "process.roles": "broker,controller",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
}
BETWEEN_BROKERS, ENABLED = "sasl.mechanism.inter.broker.protocol", "listener.name.inside.sasl.enabled.mechanisms"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({BETWEEN_BROKERS: "PLAIN"}, "PLAIN must be included in .*: listener INSIDE has SCRAM-SHA-512"),
        ({ENABLED: "PLAIN,OAUTHBEARER"}, "SCRAM-SHA-512 must be .*: listener INSIDE has PLAIN,OAUTHBEARER"),
        ({ENABLED: ""}, "SCRAM-SHA-512 must be .*: listener INSIDE has none"),
    ],
)
def test_broker_that_other_brokers_cannot_log_in_to_does_not_start(change: dict[str, str], found: str) -> None:
    with pytest.raises(ConfigError, match=f"{BETWEEN_BROKERS}={found}"):
        BrokerConfig({**NODES, **change})


def test_mechanism_of_brokers_may_be_enabled_for_their_listener_only() -> None:
    assert BrokerConfig({**NODES, BETWEEN_BROKERS: "PLAIN", ENABLED: "PLAIN"}).warnings == []


def test_node_without_other_nodes_needs_no_mechanism_between_nodes() -> None:
    alone = {name: NODES[name] for name in ("listener.security.protocol.map", "sasl.enabled.mechanisms")}
    assert BrokerConfig({**alone, "listeners": "INSIDE://127.0.0.1:1"}).warnings == []


def test_controller_that_other_nodes_cannot_log_in_to_warns() -> None:
    [warning] = BrokerConfig({**NODES, "sasl.mechanism.controller.protocol": "PLAIN"}).warnings
    assert "sasl.mechanism.controller.protocol=PLAIN cannot log in to this controller" in warning
    assert "listener CONTROL has sasl.enabled.mechanisms=SCRAM-SHA-512" in warning
