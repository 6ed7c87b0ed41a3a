"""`ottla security user` on a running broker: users are added, listed, changed and removed; passwords stay secret."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ottla.cli.connect import client_settings
from ottla.clients import Admin
from ottla.clients.admin import ScramCredential

from .commands import options_of
from .conftest import Run

SECRET = "Xq7-never-shown"


def credentials(ours: Admin, user: str) -> tuple[ScramCredential, ...]:
    return ours.describe_scram_credentials().get(user, ())


def test_user_is_added_listed_changed_and_removed(
    ottla: Run, ours: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{SECRET}\n"))
    done = ottla("security", "user", "add", "ann")
    assert (done.code, done.out) == (0, "ann: added (SCRAM-SHA-512)\n")
    assert credentials(ours, "ann") == (ScramCredential("SCRAM-SHA-512", 8192),)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    words = ("--password-file", str(tmp_path / "secret"), "--mechanism", "SCRAM-SHA-256", "--iterations", "4096")
    assert ottla("security", "user", "password", "ann", *words).code == 0
    assert set(credentials(ours, "ann")) == {
        ScramCredential("SCRAM-SHA-256", 4096),
        ScramCredential("SCRAM-SHA-512", 8192),
    }
    listed = ottla("security", "user", "list", "--json")
    assert {"user": "ann", "mechanism": "SCRAM-SHA-256", "iterations": 4096} in listed.objects
    assert SECRET not in listed.out
    assert ottla("security", "user", "remove", "ann", "--yes").code == 0
    assert credentials(ours, "ann") == ()


def test_generated_password_is_printed_once_and_differs(ottla: Run) -> None:
    first = ottla("security", "user", "add", "bob", "--generate", "--json").objects[0]
    second = ottla("security", "user", "password", "bob", "--generate", "--json").objects[0]
    assert len(first["password"]) >= 24
    assert first["password"] != second["password"]
    assert first["password"] not in ottla("security", "user", "list").out
    assert ottla("security", "user", "remove", "bob", "--yes").code == 0


def test_errors_name_the_next_step(ottla: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ottla("security", "user", "add", "cid", "--generate").code == 0
    again = ottla("security", "user", "add", "cid", "--generate")
    assert again.code == 1
    assert "the user cid exists already" in again.err
    assert "ottla security user password cid" in again.err
    for verb in ("password", "remove"):
        missing = ottla("security", "user", verb, "nobody-here", *(["--generate"] if verb == "password" else ["--yes"]))
        assert (missing.code, "there is no user nobody-here" in missing.err) == (1, True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    empty = ottla("security", "user", "password", "cid")
    assert (empty.code, "the password is empty" in empty.err) == (2, True)
    few = ottla("security", "user", "password", "cid", "--generate", "--iterations", "100")
    assert (few.code, "must be 4096 to 16384" in few.err) == (2, True)
    assert ottla("security", "user", "remove", "cid", "--yes").code == 0


def test_password_is_not_an_option(ottla: Run) -> None:
    done = ottla("security", "user", "add", "eve", "--password", SECRET)
    assert done.code == 2
    assert "unknown option --password" in done.err


LOGIN = ("-b", "127.0.0.1:1", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")


@pytest.mark.parametrize("path", ["topic list", "bench e2e t --records 1"])
@pytest.mark.parametrize("setting", ["sasl.password", "sasl_password", "ssl.key.password"])
def test_literal_secret_of_an_option_is_warned_about_once(path: str, setting: str, plain: Run) -> None:
    done = plain(*path.split(), *LOGIN, "-X", "sasl.username=ann", "-X", f"{setting}={SECRET}")
    warnings = [line for line in done.err.splitlines() if "list of processes" in line]
    assert [line.partition(":")[2].split(":")[0] for line in warnings] == [f" -X {setting}"]
    assert "--command-config FILE" in warnings[0]
    assert SECRET not in done.err


def test_secret_of_the_environment_is_used_without_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANNS_PASSWORD", SECRET)
    words = (*LOGIN, "-X", "sasl.username=ann", "-X", "sasl.password=${env:ANNS_PASSWORD}")
    assert client_settings(options_of("topic", "list", *words))["sasl.password"] == SECRET
    words = (*LOGIN, "-X", "sasl.oauthbearer.client.credentials.client.id=ann")
    client_settings(options_of("topic", "list", *words))
    assert capsys.readouterr().err == ""


def test_missing_variable_of_an_option_is_an_error(plain: Run) -> None:
    done = plain("topic", "list", *LOGIN, "-X", "sasl.password=${env:NO_SUCH_VARIABLE}")
    assert (done.code, "the environment has no variable NO_SUCH_VARIABLE" in done.err) == (2, True)


def test_literal_secret_of_a_broker_is_warned_about(ottla: Run) -> None:
    done = ottla("config", "set", "broker", "1", f"listener.name.plaintext.ssl.key.password={SECRET}", "--dry-run")
    assert "config set listener.name.plaintext.ssl.key.password: the list of processes shows" in done.err
    assert SECRET not in done.err
