"""Brokers, Python clients and commands that reach a registry over TLS: private authority, certificates, tokens."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.errors import DeliveryTimedOut, InvalidRecord
from ottla.clients.serializers import AvroDeserializer, AvroSerializer
from ottla.registry_client import RegistryClient, RegistryUnavailable
from ottla.testing import Ottla, RegistryThread
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.peers.secured import Certificates

from .registry import HttpRegistry

WAIT_S = 30.0
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
TOKEN = "a-token-of-the-broker"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


def server_context(certificates: Certificates, *, mutual: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    if mutual:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def broker_settings(url: str, **ssl_files: Path) -> dict[str, object]:
    files = {f"confluent.ssl.{name}.location": str(path) for name, path in ssl_files.items()}
    return {
        "confluent.schema.registry.url": url,
        "confluent.bearer.auth.credentials.source": "STATIC_TOKEN",
        "confluent.bearer.auth.token": TOKEN,
        "ottla.schema.validation.timeout.ms": 3_000,
        **files,
    }


def produce(broker: OttlaProcess, registry: HttpRegistry, delivery_timeout_ms: int = 20_000) -> None:
    """Send a value with a registered schema, and one without: the broker accepts the first one alone."""
    schema_id = registry.register("orders-value", {"schema": SCHEMA})["id"]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1, config={"confluent.value.schema.validation": "true"})
    timeouts = {"request.timeout.ms": delivery_timeout_ms * 4 // 9, "delivery.timeout.ms": delivery_timeout_ms}
    with Producer(bootstrap_servers=broker.bootstrap, **timeouts) as producer:
        assert producer.send("orders", b"\0" + schema_id.to_bytes(4, "big") + b"\x0e").result(WAIT_S).offset == 0
        with pytest.raises(InvalidRecord):
            producer.send("orders", b"\0\0\0\x09\x09\x0e").result(WAIT_S)


@pytest.mark.parametrize("mutual", [False, True])
def test_broker_checks_values_with_a_registry_over_tls(
    tmp_path: Path, certificates: Certificates, mutual: bool
) -> None:
    files = {"truststore": certificates.ca, **({"keystore": certificates.client} if mutual else {})}
    with HttpRegistry(server_context(certificates, mutual=mutual)) as registry:
        settings = TEST_PROPERTIES | broker_settings(registry.url, **files)
        with ForkedOttla(tmp_path / "broker", settings) as broker:
            produce(broker, registry)
            assert TOKEN not in broker.log_tail()
        assert registry.authorizations == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("wrong", ["authority", "host", "no certificate"])
def test_broker_sends_no_token_to_a_registry_that_it_does_not_trust(
    tmp_path: Path, certificates: Certificates, wrong: str
) -> None:
    context = server_context(certificates, mutual=wrong == "no certificate")
    if wrong == "host":
        context.load_cert_chain(certificates.wrong_host)
    truststore = certificates.other_ca if wrong == "authority" else certificates.ca
    with HttpRegistry(context) as registry:
        settings = TEST_PROPERTIES | broker_settings(registry.url, truststore=truststore)
        with ForkedOttla(tmp_path / "broker", settings) as broker:
            with pytest.raises(DeliveryTimedOut, match="The schema registry cannot be asked for schema id"):
                produce(broker, registry, delivery_timeout_ms=9_000)
            broker.assert_no_traceback()
        assert registry.authorizations == set()


def test_python_clients_and_commands_over_mutual_tls(ottla: Ottla, certificates: Certificates) -> None:
    given = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.authentication": "REQUIRED",
    }
    trust = {"schema.registry.ssl.truststore.location": str(certificates.ca)}
    config = {**trust, "schema.registry.ssl.keystore.location": str(certificates.client)}
    with RegistryThread(ottla.bootstrap, given) as registry:
        config["schema.registry.url"] = registry.url
        value = AvroSerializer(SCHEMA, config=config)({"id": 7}, topic="orders")
        assert AvroDeserializer(config=config)(value, topic="orders") == {"id": 7}
        for refused in (trust, {**config, "schema.registry.ssl.truststore.location": str(certificates.other_ca)}):
            settings = {**refused, "schema.registry.url": registry.url, "max.retries": 0}
            with RegistryClient(settings) as client, pytest.raises(RegistryUnavailable):
                client.get_subjects()
        words = [word for name, path in config.items() for word in ("-X", f"{name}={path}")]
        command = [sys.executable, "-m", "ottla.cli.main", "schema", "list"]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "orders-value" in done.stdout) == (0, True), done.stderr
        done = subprocess.run(
            [*command, "--registry", registry.url, "-X", "schema.registry.max.retries=0"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode != 0
