"""Reads and writes the files of Ottla in a checkpoint (`checkpoint_files`), as Spark does: by Hadoop's file systems.

So a checkpoint may be on any of these. The description of the program is written once, under another name, and then
renamed: it is complete or absent.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from ottla.spark.internals import files
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
    try:
        return files.read_text(spark, name)
    except files.FileError as error:
        raise StreamsError(str(error)) from error


def store(spark: SparkSession, directory: str, program: StoredProgram) -> None:
    """Write the description of a program into its new checkpoint. Raises StreamsError."""
    try:
        files.create_text(spark, f"{directory}/{PROGRAM_FILE}", program.dumps())
    except files.FileError as error:
        raise StreamsError(str(error)) from error


def check_unchanged(before: StoredProgram, now: StoredProgram, directory: str) -> None:
    """Raise StreamsError if the checkpoint of a program cannot be used with another one."""
    found = differences(before, now)
    if found:
        raise StreamsError(
            f"The program does not fit the checkpoint {directory}: {'; '.join(found)}. Restore the program, or start "
            "from the beginning: with another name, or after `ottla stream reset`"
        )
