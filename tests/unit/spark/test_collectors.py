"""The garbage collector of Java: ours is chosen only if the user has chosen none, since Java refuses two."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark import collectors

OURS = "-XX:+UseParallelGC"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of Spark's files, without files; and no options in the environment."""
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_ours_is_chosen_without_another(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx1g -XX:+UseStringDeduplication")
    (files / "spark-defaults.conf").write_text("spark.driver.memory 1g\n")
    assert collectors.for_any_java(OURS) == collectors.for_driver(OURS) == OURS


@pytest.mark.parametrize("name", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"])
def test_collector_of_each_java_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseG1GC")
    assert collectors.for_any_java(OURS) == collectors.for_driver(OURS) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PYSPARK_SUBMIT_ARGS", "--driver-java-options '-XX:+UseZGC' pyspark-shell"),
        ("SPARK_SUBMIT_OPTS", "-XX:+UseConcMarkSweepGC"),
    ],
)
def test_collector_of_the_driver_is_kept(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    assert collectors.for_driver(OURS) == ""
    assert collectors.for_any_java(OURS) == OURS


@pytest.mark.parametrize("name", ["spark-defaults.conf", "java-opts"])
def test_collector_of_a_spark_file_is_kept(files: Path, name: str) -> None:
    (files / name).write_text("# Ours\nspark.driver.extraJavaOptions  -XX:+UseG1GC\n")
    assert collectors.for_driver(OURS) == ""
