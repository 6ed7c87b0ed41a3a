"""franz-go, a client in Go: records, groups and transactions, with TLS and each SASL mechanism (tests/peers/franz)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import RunningBroker
from tests.peers.cache import FRANZ, in_ci, missing_for_go
from tests.peers.secured import Certificates, password_of

from .secured_ottla import MECHANISMS, SecuredOttla
from .support import unique
from .tls_ottla import TlsOttla


@pytest.fixture(autouse=True)
def _present() -> None:
    missing = missing_for_go()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


def run(address: str, **configuration: object) -> subprocess.CompletedProcess[str]:
    """Run the program's story with a new topic and group."""
    configuration = {"bootstrap": address, "topic": unique("franz"), "group": unique("franz"), **configuration}
    return subprocess.run(
        [FRANZ / "franz"], input=json.dumps(configuration), capture_output=True, text=True, timeout=90, check=False
    )


def password(user: str, mechanism: str, word: str | None = None) -> dict[str, str]:
    return {"mechanism": mechanism, "user": user, "password": word or password_of(user)}


def files(certificates: Certificates, identity: str | None = None) -> dict[str, str]:
    found = {"ca": certificates.ca}
    if identity is not None:
        found["certificate"] = certificates.directory / f"{identity}.crt"
        found["key"] = certificates.directory / f"{identity}.key"
    return {name: str(Path(path)) for name, path in found.items()}


@pytest.mark.both
@pytest.mark.parametrize("transactional", [False, True])
def test_records_groups_and_transactions(broker: RunningBroker, transactional: bool) -> None:
    done = run(broker.bootstrap, transactional=transactional)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.xdist_group("tls-ottla")
@pytest.mark.parametrize(("listener", "identity"), [("SSL", None), ("MTLS", "client")])
def test_tls(tls_ottla: TlsOttla, listener: str, identity: str | None) -> None:
    done = run(tls_ottla.address(listener), **files(tls_ottla.certificates, identity))
    assert done.stdout == "done\n", done.stderr


@pytest.mark.xdist_group("tls-ottla")
def test_a_client_without_the_required_certificate_is_refused(tls_ottla: TlsOttla) -> None:
    done = run(tls_ottla.address("MTLS"), **files(tls_ottla.certificates))
    assert done.returncode == 1
    assert "certificate required" in done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl(secured_ottla: SecuredOttla, listener: str, mechanism: str) -> None:
    tls = files(secured_ottla.certificates) if listener == "SASL_SSL" else {}
    done = run(secured_ottla.address(listener), **tls, **password("alice", mechanism))
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(secured_ottla: SecuredOttla, mechanism: str) -> None:
    done = run(secured_ottla.address("SASL_PLAINTEXT"), **password("alice", mechanism, "wrong"))
    assert done.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in done.stderr
