"""`ottla security user` on a running broker: users are added, listed, changed and removed; passwords stay secret."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import ScramCredential

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
