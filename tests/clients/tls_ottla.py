"""Ottla with TLS listeners, with the certificates of `tests.peers.secured`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config import format_properties
from ottla.testing.ports import ReservedPort
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla
from tests.peers.secured import Certificates, password_of

PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_SSL": "SASL_SSL",
    "WRONG_HOST": "SSL",
    "EXPIRED": "SSL",
    "RELOADED": "SSL",
}
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class TlsOttla(ForkedOttla):
    """A broker with the listeners of `PROTOCOLS`.

    SSL requests no certificate, MTLS requires one, RELOADED reads `store`, which a test may replace.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.certificates = Certificates(directory / "certificates")
        self.store = directory / "reloaded.pem"
        shutil.copy(self.certificates.server, self.store)
        self._ports = {name: ReservedPort() for name in PROTOCOLS}
        stores = {
            "wrong_host": self.certificates.wrong_host,
            "expired": self.certificates.expired,
            "reloaded": self.store,
        }
        self._settings = {
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in PROTOCOLS),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.location": str(self.certificates.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{_JAAS} user_alice="{password_of("alice")}";',
            **{f"listener.name.{name}.ssl.keystore.location": str(path) for name, path in stores.items()},
            **{name: str(value) for name, value in TEST_PROPERTIES.items()},
        }

    def address(self, listener: str) -> str:
        """host:port of a listener, by its name."""
        return f"127.0.0.1:{self._ports[listener].number}"

    def port(self, listener: str) -> int:
        """The port of a listener."""
        return self._ports[listener].number

    def command(self) -> list[str]:
        """The command line that starts it; the passwords are in the file."""
        path = self.directory / "server.properties"
        path.write_text(format_properties(self._settings))
        return [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(path)]


@pytest.fixture(scope="session")
def tls_ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsOttla]:
    """A running Ottla with TLS listeners, shared by the session."""
    ottla = TlsOttla(tmp_path_factory.mktemp("tls-ottla"))
    ottla.start()
    yield ottla
    assert ottla.stop() == 0
    ottla.assert_no_traceback()
