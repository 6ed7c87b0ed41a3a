"""`ottla security init`, and files with secrets: their modes, and what happens if other users can read them."""

from __future__ import annotations

import datetime as dt
import io
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from ottla.broker.sasl_mechanisms import prepared
from ottla.cli.main import main
from ottla.cli.security_user import MECHANISMS
from ottla.common.failure import Failure
from ottla.config import BrokerConfig, load_properties
from ottla.network.sasl_settings import parse_jaas
from ottla.tools import profile_file
from ottla.tools.secured_files import CLIENTS, ClusterPlan, SecuredFiles

SECRET = "Xq7-never-shown"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)


def init(*words: str) -> None:
    assert main(["security", "init", *words]) == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def login_of(path: Path) -> dict[str, str]:
    return parse_jaas(load_properties(path)["sasl.jaas.config"])[1]


def test_each_file_with_a_key_or_password_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        init("--client", "ann")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "security").rglob("*") if path.is_file()]
    public = {path.name for path in files if mode(path) != 0o600}
    assert public == {"ca.pem"}
    assert {mode(path) for path in files if path.name == "ca.pem"} == {0o644}
    private = {path.name for path in files if mode(path) == 0o600}
    assert private == {"ca.key", "keystore.pem", "server.properties", "admin.properties", "ann.pem", "ann.properties"}
    assert mode(tmp_path / "security") == 0o700


def test_certificates_are_for_the_hosts_of_their_node_and_no_client_can_be_a_server(tmp_path: Path) -> None:
    init("cluster", "--node", "kafka1,10.0.0.1", "--node", "kafka2", "--client", "ann", "--days", "30")
    directory = tmp_path / "cluster"
    node, client = certificate(directory / "node-1/keystore.pem"), certificate(directory / "clients/ann.pem")
    names = node.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka1"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    usages = [each.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value for each in (node, client)]
    server = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    assert [server in usage for usage in usages] == [True, False]
    assert client.subject.rfc4514_string() == "CN=ann"
    left = node.not_valid_after_utc - dt.datetime.now(dt.UTC)
    assert dt.timedelta(days=29) < left < dt.timedelta(days=31)
    for each in (directory / "node-1/keystore.pem", directory / "clients/ann.pem"):
        subprocess.run(
            ["openssl", "verify", "-x509_strict", "-CAfile", str(directory / "ca.pem"), str(each)],
            check=True, capture_output=True, timeout=30,
        )  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_settings_of_each_node_are_valid_and_have_no_plaintext_listener(tmp_path: Path, count: int) -> None:
    init("--admin", "root", *(word for i in range(count) for word in ("--node", f"127.0.0.{i + 1}")))
    for number in range(1, count + 1):
        home = tmp_path / "security" / f"node-{number}"
        config = BrokerConfig(load_properties(home / "server.properties"))
        assert config.node_id == number
        everything = [*config.listeners, *config.controller_listeners]
        assert all(each.protocol.uses_tls for each in everything)
        assert config.log_dirs == [str(home / "data")]
        for listener in everything:
            # A listener without passwords must ask for certificates: else every client would be anonymous.
            asks = config.for_listener(listener.name).text("ssl.client.auth") == "required"
            assert asks != listener.protocol.uses_sasl
    admin = load_properties(tmp_path / "security" / "admin.properties")
    assert login_of(tmp_path / "security" / "admin.properties")["username"] == "root"
    assert admin["bootstrap.servers"].count(":9092") == count


def test_listener_of_clients_accepts_each_mechanism_of_a_user_or_token(tmp_path: Path) -> None:
    init("--node", "127.0.0.1")
    config = BrokerConfig(load_properties(tmp_path / "security" / "node-1" / "server.properties"))
    enabled = prepared(config, CLIENTS)
    # `ottla security user add --mechanism`; the file of `ottla security token create --write` has SCRAM-SHA-256.
    assert set(enabled) == {"PLAIN", *MECHANISMS}


def test_second_call_keeps_every_file_and_adds_what_is_missing(tmp_path: Path) -> None:
    init("--node", "127.0.0.1")
    directory = tmp_path / "security"
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    init("--node", "127.0.0.1", "--client", "ann")
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert before.items() <= after.items()
    assert {path.name for path in after.keys() - before.keys()} == {"ann.pem", "ann.properties"}


def test_renewal_replaces_certificates_and_nothing_else(tmp_path: Path) -> None:
    init("--client", "ann")
    directory = tmp_path / "security"
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    init("--client", "ann", "--renew")
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {"keystore.pem", "ann.pem"}
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    context.load_cert_chain(directory / "node-1/keystore.pem")


def test_missing_authority_key_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init()
    (tmp_path / "security" / "ca.key").unlink()
    assert main(["security", "init", "--client", "ann"]) == 1
    assert "ca.key is missing: only it can issue certificates" in capsys.readouterr().err


def test_missing_library_is_an_error_that_names_the_extra() -> None:
    code = (
        "import sys\nsys.modules['cryptography'] = None\nfrom ottla.cli.main import main\n"
        "sys.exit(main(['security', 'init', 'there']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "ottla[security]" in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("name", ["", "a b", 'x"', "../x"])
def test_name_of_the_administrator_must_fit_into_settings(name: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be a user"):
        SecuredFiles(tmp_path).create(ClusterPlan([["localhost"]], admin=name))


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b"])
def test_name_of_a_client_must_be_a_file_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot be the name of a client's file"):
        SecuredFiles(tmp_path).create(ClusterPlan([["localhost"]], clients=[name]))


def test_client_cannot_have_the_certificate_of_a_node(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="node-2 is the name of a node"):
        SecuredFiles(tmp_path).create(ClusterPlan([["localhost"]], clients=["node-2"]))
    assert not (tmp_path / "clients").exists()


# -- files that other users can read -----------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [0o640, 0o604, 0o644])
def test_profile_with_a_password_that_others_can_read_is_refused(
    opened: int, capsys: pytest.CaptureFixture[str]
) -> None:
    profile_file.store("prod", {"bootstrap.servers": "127.0.0.1:1", "sasl.password": SECRET})
    path = Path(profile_file.path())
    path.chmod(opened)
    assert main(["cluster", "--profile", "prod"]) == 2
    said = capsys.readouterr().err
    assert f"permissions {opened:04o} of {path} are too open: it has sasl.password" in said
    assert f"chmod 600 {path}" in said
    assert SECRET not in said


def test_profile_without_secrets_may_be_readable(capsys: pytest.CaptureFixture[str]) -> None:
    profile_file.store("local", {"bootstrap.servers": "127.0.0.1:1"})
    Path(profile_file.path()).chmod(0o644)
    assert main(["cluster", "--profile", "local", "-X", "default.api.timeout.ms=10"]) == 1
    assert "too open" not in capsys.readouterr().err


def test_settings_file_with_a_password_that_others_can_read_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username=ann\nsasl.password={SECRET}\ndefault.api.timeout.ms=10\n"
    )
    for opened, warns in ((0o644, True), (0o600, False)):
        path.chmod(opened)
        assert main(["cluster", "--command-config", str(path)]) == 1
        said = capsys.readouterr().err
        assert (f"chmod 600 {path}" in said) is warns
        assert SECRET not in said


def test_secret_can_be_in_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"bootstrap.servers": "${env:CLUSTER}", "default.api.timeout.ms": "10"}
    profile_file.store("prod", dict(settings))
    assert main(["cluster", "--profile", "prod"]) == 2
    assert "bootstrap.servers is ${env:CLUSTER}, but the environment has no variable" in capsys.readouterr().err
    monkeypatch.setenv("CLUSTER", "127.0.0.1:1")
    assert main(["cluster", "--profile", "prod"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_start_warns_of_settings_that_others_can_read(tmp_path: Path) -> None:
    from ottla.launch.settings import broker_config
    from tests.cli.commands import options_of

    init()
    path = tmp_path / "security" / "node-1" / "server.properties"
    for opened, warns in ((0o644, True), (0o600, False)):
        path.chmod(opened)
        warnings = broker_config(options_of("up", "--config", str(path))).warnings
        assert any("are too open" in each for each in warnings) is warns


def test_literal_secret_of_a_profile_or_of_a_first_user_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["profile", "set", "prod", "bootstrap.servers=127.0.0.1:1", f"sasl.password={SECRET}"]) == 0
    said = capsys.readouterr().err
    assert "profile set sasl.password: the list of processes shows its value" in said
    assert SECRET not in said
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    assert main(["profile", "set", "prod", "sasl.password=-"]) == 0
    assert capsys.readouterr().err == ""
    words = ["--data", str(tmp_path / "data"), "-S", f"SCRAM-SHA-256=[name=ann,password={SECRET}]"]
    assert main(["format", *words]) == 0
    said = capsys.readouterr().err
    assert "--add-scram: the list of processes shows the password" in said
    assert SECRET not in said
