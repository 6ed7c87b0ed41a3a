"""Certificates of listeners and principals of clients: the settings of the broker."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.certificates import Certificates
from ottla.common.errors import ErrorCode, KafkaError
from ottla.config import BrokerConfig
from ottla.metadata.image import BROKER
from ottla.network.principals import TlsClient, principal_builder
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.security.authorizer import Decision
from tests.peers.secured import Certificates as Files

from .harness import BrokerHarness

LISTENERS = {
    "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "ssl.client.auth": "required",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


def certificates(files: Files, **more: str) -> Certificates:
    stores = {"ssl.keystore.location": str(files.server), "ssl.truststore.location": str(files.ca)}
    config = BrokerConfig(LISTENERS | stores | more)
    return Certificates(config, config.listeners)


def der(files: Files, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(files.text(f"{name}.crt"))


# -- principals ------------------------------------------------------------------------------------------------


def by_function(client: TlsClient) -> str:
    return f"Service:{client.listener}/{client.host}/{client.distinguished_name}"


def failing(_client: TlsClient) -> str:
    raise RuntimeError("secret of the operator")


def without_type(_client: TlsClient) -> str:
    return "alice"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "User:CN=client"),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"}, "User:CLIENT"),
        ({"principal.builder.class": f"{__name__}:by_function"}, "Service:SSL/10.0.0.7/CN=client"),
    ],
)
def test_principal_is_built_as_configured(files: Files, settings: dict[str, str], expected: str) -> None:
    build = principal_builder("SSL", BrokerConfig(settings))
    assert build(der(files, "client"), "10.0.0.7") == expected


def test_client_without_a_certificate_is_anonymous() -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/"}
    assert principal_builder("SSL", BrokerConfig(rules))(None, "10.0.0.7") == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.principal.mapping.rules": "RULE:^O=(.*)$/$1/"}, "No rules apply to CN=client"),
        ({"principal.builder.class": f"{__name__}:failing"}, "failing raised RuntimeError"),
        ({"principal.builder.class": f"{__name__}:without_type"}, "not of the form Type:name"),
    ],
)
def test_client_without_a_principal_is_refused(files: Files, settings: dict[str, str], words: str) -> None:
    build = principal_builder("SSL", BrokerConfig(settings))
    with pytest.raises(ValueError, match=words) as caught:
        build(der(files, "client"), "10.0.0.7")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"principal.builder.class": "com.example.Builder"},
        {"principal.builder.class": "no.such.module:builder"},
        {"ssl.principal.mapping.rules": "RULE:(/x/"},
    ],
)
def test_unknown_builder_and_broken_rules_are_refused_at_the_start(files: Files, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as caught:
        certificates(files, **settings)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


# -- listeners -------------------------------------------------------------------------------------------------


def test_sasl_listener_requests_certificates_only_by_its_own_setting(files: Files) -> None:
    """KIP-684."""

    def modes(**more: str) -> list[ssl.VerifyMode]:
        made = certificates(files, **more)
        found = [made.of(name) for name in ("SSL", "SASL_SSL")]
        return [each.context.verify_mode for each in found if each is not None]

    assert modes() == [ssl.CERT_REQUIRED, ssl.CERT_NONE]
    own = {"listener.name.sasl_ssl.ssl.client.auth": "requested"}
    assert modes(**own) == [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL]


def test_principal_of_a_sasl_listener_does_not_come_from_the_certificate(files: Files) -> None:
    sasl, tls = (certificates(files).of(name) for name in ("SASL_SSL", "SSL"))
    assert sasl is not None
    assert tls is not None
    assert sasl.principal_of(der(files, "client"), "10.0.0.7") == "User:ANONYMOUS"
    assert tls.principal_of(der(files, "client"), "10.0.0.7") == "User:CN=client"


def test_damaged_file_is_logged_with_the_listener(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "server.pem"
    shutil.copy(files.server, store)
    made = certificates(files, **{"listener.name.ssl.ssl.keystore.location": str(store)})
    tls = made.of("SSL")
    assert tls is not None
    before = tls.context
    store.write_text("damaged")
    made.reload()
    made.reload()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The certificate of listener SSL stays as it was" in caplog.text
    assert str(store) in caplog.text
    assert tls.context is before


# -- changes ---------------------------------------------------------------------------------------------------


class Denying:
    def decide(self, *_arguments: object) -> Decision:
        return Decision(is_allowed=False, reason="DefaultDeny")


def alter(harness: BrokerHarness, value: str) -> Any:
    change = incremental.AlterableConfig("listener.name.ssl.ssl.keystore.location", 0, value)
    resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
    return harness.ask(incremental.IncrementalAlterConfigsRequest(resources=[resource])).responses[0]


def test_change_that_makes_a_key_store_unusable_is_refused(harness: BrokerHarness, files: Files) -> None:
    harness.broker.security.certificates = certificates(files)
    refused = alter(harness, "/no/such.pem")
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "Validation of dynamic config update of SSLFactory failed: listener SSL: " in refused.error_message
    assert alter(harness, str(files.client)).error_code == ErrorCode.INVALID_REQUEST
    assert alter(harness, str(files.server)).error_code == ErrorCode.NONE


def test_only_clients_that_may_alter_settings_learn_about_files(harness: BrokerHarness, files: Files) -> None:
    harness.broker.security.certificates = certificates(files)
    harness.broker.security.authorizer = Denying()  # type: ignore[assignment]
    answers = [alter(harness, path) for path in ("/no/such.pem", "/etc/passwd", str(files.server))]
    assert {each.error_code for each in answers} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert len({each.error_message for each in answers}) == 1
