"""The description of a program in its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.streams import StreamsError
from ottla.streams.checkpoint_files import PROGRAM_FILE, StoredProgram
from ottla.streams.checkpoints import check_unchanged, load, store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = StoredProgram(2, {"lines": "lines"}, {"wordcount": ["aggregate by word"]})


def test_program_is_stored_and_another_one_is_refused(ottla_spark: SparkSession, tmp_path: Path) -> None:
    directory = f"{tmp_path}/wordcount"
    assert load(ottla_spark, directory) is None
    store(ottla_spark, directory, PROGRAM)
    assert load(ottla_spark, directory) == PROGRAM
    check_unchanged(PROGRAM, PROGRAM, directory)
    other = StoredProgram(2, {"lines": "lines"}, {"wordcount": ["aggregate by day"]})
    with pytest.raises(StreamsError, match="had aggregate by word, and has aggregate by day"):
        check_unchanged(PROGRAM, other, directory)
    # Without the checksum that Hadoop writes beside it.
    (tmp_path / "wordcount" / f".{PROGRAM_FILE}.crc").unlink()
    (tmp_path / "wordcount" / PROGRAM_FILE).write_text("{}")
    with pytest.raises(StreamsError, match="unreadable"):
        load(ottla_spark, directory)


@pytest.mark.parametrize(("directory", "reason"), [
    ("/proc/ottla", "/proc/ottla/ottla-program.json cannot be read or written: java.io.IOException: Mkdirs failed"),
    ("nowhere://x", "No FileSystem for scheme"),
])  # fmt: skip
def test_inaccessible_checkpoint_is_one_line(ottla_spark: SparkSession, directory: str, reason: str) -> None:
    with pytest.raises(StreamsError, match=reason) as raised:
        store(ottla_spark, directory, PROGRAM)
    assert "\n" not in str(raised.value)
