"""Files of a checkpoint, read and written as Spark does: by Hadoop's file systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from ottla.spark.internals.errors import JAVA_EXCEPTION
from ottla.spark.internals.exceptions import first_line


class FileError(Exception):
    """A file cannot be read or written: no permission, or a file system that Spark has no classes for."""


def read_text(spark: SparkSession, name: str) -> str | None:
    """Return the text of a file; None if it does not exist. Raises FileError.

    Uses `SparkContext._jvm` and `_jsc` (pyspark 4.2 to 4.3).
    """
    with _accessible(name):
        files, path = _file(spark, name)
        if not files.exists(path):
            return None
        opened = files.open(path)
        try:
            return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
        finally:
            opened.close()


def exists(spark: SparkSession, name: str) -> bool:
    """Whether a file or a directory exists. Raises FileError.

    Uses `SparkContext._jvm` and `_jsc` (pyspark 4.2 to 4.3).
    """
    with _accessible(name):
        files, path = _file(spark, name)
        return bool(files.exists(path))


def create_text(spark: SparkSession, name: str, text: str) -> None:
    """Write a new file, which is complete or absent: under another name, and then renamed. Raises FileError.

    Uses `SparkContext._jvm` and `_jsc` (pyspark 4.2 to 4.3).
    """
    with _accessible(name):
        files, path = _file(spark, name)
        _, temporary = _file(spark, f"{name}.new")
        written = files.create(temporary, True)
        try:
            written.write(bytearray(text.encode()))
        finally:
            written.close()
        if not files.rename(temporary, path):
            raise FileError(f"{name} cannot be written")


@contextmanager
def _accessible(name: str) -> Iterator[None]:
    try:
        yield
    except JAVA_EXCEPTION as error:
        raise FileError(f"{name} cannot be read or written: {first_line(error)}") from error


def _file(spark: SparkSession, name: str) -> tuple[Any, Any]:
    context: Any = spark.sparkContext
    path = _jvm(spark).org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001
