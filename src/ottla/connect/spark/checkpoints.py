"""The checkpoint of a query in a directory of this machine, and the log that a table of files has of its query.

Spark's file sinks write the numbers of finished micro-batches into the output (`_spark_metadata`). A query with a new
checkpoint begins with batch 0 again: Spark would take its batches for written, and lose their rows. So a new query may
not write where another one has written. Does not import Spark.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from ottla.connect.errors import BadRequestError
from ottla.connect.spark.settings import SparkSettings
from ottla.streams.errors import StreamsError
from ottla.streams.resetting import local_path

METADATA: Final = "metadata"
"""The file with the id of a query. Spark writes it first."""
OUTPUT_LOG: Final = "_spark_metadata"
FILE_FORMATS: Final = frozenset({"parquet", "json", "csv", "orc", "text"})


def output_log(settings: SparkSettings) -> str | None:
    """Return the directory in which Spark logs the batches of a sink; None if it is not a table of files."""
    path = settings.options.get("path")
    is_table = settings.format in FILE_FORMATS and not settings.is_batch and path
    return f"{str(path).rstrip('/')}/{OUTPUT_LOG}" if is_table else None


def other_query(log: str) -> str:
    """Return the sentence about an output that another query has written."""
    return (
        f"{log} has the log of another query, or of this one before its checkpoint was lost: a new query would take "
        "its first batches for written already, and lose records. Restore the checkpoint, or set another "
        "spark.option.path"
    )


def check_output(settings: SparkSettings) -> None:
    """Raise BadRequestError if a new query could not write to the output."""
    log = output_log(settings)
    if log is not None and _local(log).exists():
        raise BadRequestError(f"The offsets cannot be changed. {other_query(log)}")


def move_aside(checkpoint: str) -> None:
    """Rename a checkpoint, so that the next query starts without it. Raises BadRequestError."""
    path = _local(checkpoint)
    for number in range(1, 1_000):
        try:
            path.rename(path.with_name(f"{path.name}.reset-{number}"))
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                continue
            raise BadRequestError(f"The checkpoint {path} cannot be moved: {error}") from error
        return
    raise BadRequestError(f"There are a thousand old checkpoints beside {path}: delete some")


def _local(name: str) -> Path:
    try:
        return local_path(name)
    except StreamsError as error:
        raise BadRequestError(str(error)) from error
