"""The parsed sources, shared by the tests of one process that search them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tools import metrics


@cache
def source_files() -> list[metrics.SourceFile]:
    """The files of src. Each one is parsed, and its tree walked, at the first use."""
    return metrics.files(metrics.SOURCES)


@cache
def by_path() -> dict[Path, metrics.SourceFile]:
    """The same by their paths."""
    return {file.path: file for file in source_files()}
