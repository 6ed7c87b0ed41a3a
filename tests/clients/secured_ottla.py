"""Ottla with SASL listeners, with the users of `tests.peers.secured`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.config import format_properties
from ottla.testing.ports import ReservedPort
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla
from tests.peers.secured import SCRAM, SESSION_MS, USERS, Certificates, password_of

MECHANISMS = ("PLAIN", *SCRAM)
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SHORT")
_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SHORT:SASL_PLAINTEXT"
_USERS = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
_JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"


class SecuredOttla(ForkedOttla):
    """A broker with the listeners PLAINTEXT, SASL_PLAINTEXT, SASL_SSL and SHORT, whose sessions last 2 s.

    A client of SASL_SSL may have a certificate.

    The users of SCRAM must be created on PLAINTEXT, or by `--add-scram` in `format_options`.
    """

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None) -> None:
        super().__init__(directory)
        self.certificates = Certificates(directory / "certificates")
        self._ports = {name: ReservedPort() for name in LISTENERS}
        self._settings = {
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in LISTENERS),
            "listener.security.protocol.map": _PROTOCOLS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.sasl_ssl.ssl.client.auth": "requested",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connection.failed.authentication.delay.ms": "20",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _JAAS,
            "listener.name.short.plain.sasl.jaas.config": _JAAS,
            **{f"listener.name.short.{each.lower()}.connections.max.reauth.ms": str(SESSION_MS) for each in MECHANISMS},
            **{name: str(value) for name, value in (TEST_PROPERTIES | dict(properties or {})).items()},
        }

    def address(self, listener: str) -> str:
        """host:port of a listener, by its name."""
        return f"127.0.0.1:{self._ports[listener].number}"

    def command(self) -> list[str]:
        """The command line that starts it; the passwords are in the file."""
        path = self.directory / "server.properties"
        path.touch(0o600)
        path.write_text(format_properties(self._settings))
        return [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(path)]

    def format(self) -> None:
        """Format the directory with the users of SCRAM."""
        users = [f"--add-scram={each}=[name={user},password={password_of(user)}]" for each in SCRAM for user in USERS]
        words = [sys.executable, "-m", "ottla.cli.main", "format", "-X", f"log.dirs={self.data}", *users]
        subprocess.run(words, check=True, timeout=30, capture_output=True)


@pytest.fixture(scope="session")
def secured_ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    """A running Ottla with SASL listeners, shared by the session."""
    ottla = SecuredOttla(tmp_path_factory.mktemp("secured-ottla"))
    ottla.format()
    ottla.start()
    yield ottla
    assert ottla.stop() == 0
    ottla.assert_no_traceback()
