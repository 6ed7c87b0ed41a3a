"""Kafka's own tools and kafkajs against TLS listeners, with PEM and PKCS12 stores."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.config import format_properties
from tests.clients.support import unique
from tests.clients.tls_ottla import TlsOttla, tls_ottla  # noqa: F401 - a fixture
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm, missing_for_node
from tests.peers.node import node

from .conftest import HERE

# The fixture of the module has the same name as the argument of each test.
# ruff: noqa: F811


SOON = {"request.timeout.ms": "10000", "default.api.timeout.ms": "15000"}


def tool(name: str, ottla: TlsOttla, listener: str, settings: Path, *words: str, stdin: str = "") -> str:
    """Run a tool with the settings; returns standard output, or the reason why it failed."""
    if missing_for_jvm():
        (pytest.fail if in_ci() else pytest.skip)(missing_for_jvm())
    address = ("--bootstrap-server", f"localhost:{ottla.port(listener)}", "--command-config", str(settings))
    done = kafka.tool(name, *address, *words, input=stdin, timeout=60)
    return done.stdout if done.returncode == 0 else f"failed: {done.stdout}{done.stderr}"


def written(ottla: TlsOttla, name: str, settings: dict[str, str]) -> Path:
    path = ottla.directory / f"{name}.properties"
    path.write_text(format_properties({**SOON, "security.protocol": "SSL", **settings}))
    return path


@pytest.fixture(scope="module")
def pem(tls_ottla: TlsOttla) -> Path:
    certificates = tls_ottla.certificates
    return written(
        tls_ottla,
        "pem",
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(_pkcs8(certificates.directory)),
        },
    )


def _pkcs8(directory: Path) -> Path:
    """Return the client's key and certificates in the order that Java reads."""
    path = directory / "client-java.pem"
    path.write_text((directory / "client.key").read_text() + (directory / "client.crt").read_text())
    return path


@pytest.mark.jvm
def test_tools_with_a_client_certificate_write_and_read(tls_ottla: TlsOttla, pem: Path) -> None:
    topic = unique("java")
    assert "Created topic" in tool("topics", tls_ottla, "MTLS", pem, "--create", "--topic", topic)
    lines = "".join(f"{number:05}{'x' * 5_000}\n" for number in range(400))
    tool("console-producer", tls_ottla, "MTLS", pem, "--topic", topic, stdin=lines)
    words = ("--topic", topic, "--from-beginning", "--max-messages", "400", "--timeout-ms", "20000")
    assert tool("console-consumer", tls_ottla, "SSL", pem, *words) == lines


@pytest.mark.jvm
def test_tools_trust_a_pkcs12_store_and_check_the_host(tls_ottla: TlsOttla) -> None:
    directory = tls_ottla.certificates.directory
    (directory / "trust.p12").unlink(missing_ok=True)
    subprocess.run(
        [
            *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "trust.p12"),
            *("-storetype", "PKCS12", "-storepass", "store-secret"),
        ],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=60,
    )
    trust = {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": str(directory / "trust.p12")}
    settings = written(tls_ottla, "p12", trust | {"ssl.truststore.password": "store-secret"})
    assert "failed" not in tool("topics", tls_ottla, "SSL", settings, "--list")
    refused = tool("topics", tls_ottla, "MTLS", settings, "--list")
    assert "SslAuthenticationException" in refused
    refused = tool("topics", tls_ottla, "WRONG_HOST", settings, "--list")
    assert "No subject alternative DNS name matching localhost found" in refused


@pytest.mark.jvm
def test_configs_tool_changes_and_describes_the_key_store(tls_ottla: TlsOttla, pem: Path) -> None:
    name = "listener.name.reloaded.ssl.keystore.location"
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    added = f"{name}={tls_ottla.certificates.server}"
    assert "Completed updating" in tool("configs", tls_ottla, "SSL", pem, "--alter", *broker, "--add-config", added)
    assert added in tool("configs", tls_ottla, "SSL", pem, "--describe", *broker)
    wrong = ("--add-config", f"{name}=/no/such.pem")
    refused = tool("configs", tls_ottla, "SSL", pem, "--alter", *broker, *wrong)
    assert "Validation of dynamic config update of SSLFactory failed" in refused


@pytest.mark.node
@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
def test_kafkajs_writes_and_reads(tls_ottla: TlsOttla, listener: str) -> None:
    missing = missing_for_node()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    address = f"localhost:{tls_ottla.port(listener)}"
    story = HERE / "kafkajs" / "tls.js"
    done = node(story, address, unique("js"), str(tls_ottla.certificates.directory), timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
