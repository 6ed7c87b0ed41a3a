"""The archive of Spark's classes: where it is, when it is used, and the program that makes Java load them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark import class_archive, class_program


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a Java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(java))
    return tmp_path


def test_an_archive_is_used_if_it_exists() -> None:
    archive = class_archive.place()
    assert archive is not None
    assert class_archive.java_options() == ""
    archive.parent.mkdir()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_options()


def test_each_java_has_its_archive(cache: Path) -> None:
    before = class_archive.place()
    (cache / "java" / "release").write_text('JAVA_VERSION="17.0.2"')
    assert class_archive.place() not in (before, None)


def test_without_java_there_is_none(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(cache / "nowhere"))
    assert class_archive.place() is None
    with pytest.raises(class_archive.ArchiveFailed, match="no Java"):
        class_archive.create()


def test_a_failed_program_leaves_no_archive(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def fail(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        Path(command[-1].partition("=")[2].split()[0]).write_text("half")
        return subprocess.CompletedProcess(command, 1, stdout="out of memory")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(class_archive.ArchiveFailed, match="out of memory"):
        class_archive.create()
    assert not list((cache / "ottla").iterdir())


def test_the_program_runs_its_queries(spark: SparkSession, tmp_path: Path) -> None:
    class_program.run_queries(spark, str(tmp_path))
    batches = {int(each.name) for each in (tmp_path / "counts" / "commits").iterdir() if each.name.isdigit()}
    assert batches == set(range(class_program.BATCHES))
