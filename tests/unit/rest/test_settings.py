"""Settings of the proxy and of its clients."""

from __future__ import annotations

import pytest

from ottla.clients.errors import ConfigurationError
from ottla.rest.settings import known, read_settings


def test_defaults_are_confluents() -> None:
    settings = read_settings({})
    assert settings.consumer_request_timeout_ms == 1_000
    assert settings.consumer_instance_timeout_ms == 300_000
    assert settings.fetch_min_bytes == -1
    assert settings.seconds("consumer_request_timeout_ms") == 1.0


def test_prefixes_belong_to_clients() -> None:
    settings = read_settings({"client.security.protocol": "SASL_SSL", "producer.acks": "all", "consumer.threads": 4})
    assert settings.connection["security.protocol"] == "SASL_SSL"
    assert settings.clients["producer"]["acks"] == "all"
    assert settings.uses_sasl
    assert settings.basic_mechanism == "PLAIN"


def test_mechanism_of_basic_credentials() -> None:
    for mechanism, expected in (("SCRAM-SHA-512", "SCRAM-SHA-512"), ("OAUTHBEARER", "PLAIN")):
        assert read_settings({"client.sasl.mechanism": mechanism}).basic_mechanism == expected


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"request\.timeout\.ms"):
        read_settings({"consumer.request.timeout.m": 1})
    assert known("producer.acks")
    assert known("ssl.keystore.location")
    assert not known("confluent.license")
