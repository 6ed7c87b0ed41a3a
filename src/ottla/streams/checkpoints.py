"""Reads and writes the files of Ottla in a checkpoint (`checkpoint_files`), as Spark does: by Hadoop's file systems.

So a checkpoint may be on any of these. The description of the program is written once, under another name, and then
renamed: it is complete or absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import SparkSession

from ottla.spark.offsets import EARLIEST
from ottla.streams.checkpoint_files import PROGRAM_FILE, START_FILE, StoredProgram, differences, load_starts
from ottla.streams.errors import StreamsError


def load(spark: SparkSession, directory: str) -> StoredProgram | None:
    """Return the description in a checkpoint; None if there is no checkpoint. Raises StreamsError."""
    text = _read(spark, f"{directory}/{PROGRAM_FILE}")
    if text is None:
        return None
    try:
        return StoredProgram.loads(text)
    except ValueError as error:
        raise StreamsError(f"{directory}/{PROGRAM_FILE}: {error}") from None


def starting_offsets(spark: SparkSession, directory: str, partitions: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return where a pipeline starts after `ottla stream reset`, by topic and partition; by default nothing.

    `partitions` has the number of partitions of each input: one that was added since starts at its beginning. Raises
    StreamsError.
    """
    text = _read(spark, f"{directory}/{START_FILE}")
    if text is None:
        return {}
    try:
        found = load_starts(text)
    except ValueError as error:
        raise StreamsError(f"{directory}/{START_FILE}: {error}") from None
    return {
        topic: {str(each): offsets.get(str(each), EARLIEST) for each in range(partitions[topic])}
        for topic, offsets in found.items()
        if topic in partitions
    }


def _read(spark: SparkSession, name: str) -> str | None:
    with _accessible(name):
        files, path = _file(spark, name)
        if not files.exists(path):
            return None
        opened = files.open(path)
        try:
            return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
        finally:
            opened.close()


def store(spark: SparkSession, directory: str, program: StoredProgram) -> None:
    """Write the description of a program into its new checkpoint. Raises StreamsError."""
    name = f"{directory}/{PROGRAM_FILE}"
    with _accessible(name):
        files, path = _file(spark, name)
        _, temporary = _file(spark, f"{name}.new")
        written = files.create(temporary, True)
        try:
            written.write(bytearray(program.dumps().encode()))
        finally:
            written.close()
        if not files.rename(temporary, path):
            raise StreamsError(f"{name} cannot be written")


def check_unchanged(before: StoredProgram, now: StoredProgram, directory: str) -> None:
    """Raise StreamsError if the checkpoint of a program cannot be used with another one."""
    found = differences(before, now)
    if found:
        raise StreamsError(
            f"The program does not fit the checkpoint {directory}: {'; '.join(found)}. Restore the program, or start "
            "from the beginning: with another name, or after `ottla stream reset`"
        )


@contextmanager
def _accessible(name: str) -> Iterator[None]:
    """Raise StreamsError for an error of a file system: no permission, or one that Spark has no classes for."""
    try:
        yield
    except Py4JJavaError as error:
        reason = str(error.java_exception).splitlines()[0]
        raise StreamsError(f"{name} cannot be read or written: {reason}") from error


def _file(spark: SparkSession, name: str) -> tuple[Any, Any]:
    path = _jvm(spark).org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path  # noqa: SLF001 - no other access


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001 - no other access
