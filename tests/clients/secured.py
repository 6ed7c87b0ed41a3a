"""A stock Kafka with authentication, shared by the session, and the settings of clients for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from ottla.security.oauthbearer import unsecured_jws
from tests.conftest import TEST_PROPERTIES
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.secured import SecuredKafka, password_of


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A running stock Kafka with TLS, SASL and ACLs, shared by the session."""
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with SecuredKafka(tmp_path_factory.mktemp("secured"), TEST_PROPERTIES) as kafka:
        yield kafka


def tls(kafka: SecuredKafka, listener: str = "SSL", settings: Mapping[str, object] | None = None) -> dict[str, object]:
    """Settings for a TLS listener."""
    location = str(kafka.certificates.ca)
    return {
        "bootstrap.servers": kafka.address(listener),
        "security.protocol": "SSL",
        "ssl.truststore.location": location,
        **(settings or {}),
    }


def sasl(
    kafka: SecuredKafka,
    mechanism: str,
    user: str = "admin",
    listener: str = "SASL_PLAINTEXT",
    settings: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Settings for a user on a SASL listener."""
    given: dict[str, object] = {
        "bootstrap.servers": kafka.address(listener),
        "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if listener == "SASL_SSL":
        given["ssl.truststore.location"] = str(kafka.certificates.ca)
    if mechanism == "OAUTHBEARER":
        given["sasl.oauth.token.provider"] = lambda: unsecured_jws(user, now_s=time.time())
    else:
        given |= {"sasl.username": user, "sasl.password": password_of(user)}
    return {**given, **(settings or {})}
