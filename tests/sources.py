"""The parsed sources, shared by the tests of one process that search them."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

from tools import metrics


@cache
def source_files() -> list[metrics.SourceFile]:
    """The files of src, parsed.

    Their 1.4 million nodes live as long as the process. The garbage collector would search them again and again while
    they are created, for two thirds of the time, and then for a second in each test that collects garbage.
    """
    gc.disable()
    try:
        files = metrics.files(metrics.SOURCES)
        for file in files:
            _ = file.nodes
    finally:
        gc.enable()
    gc.freeze()
    return files


@cache
def by_path() -> dict[Path, metrics.SourceFile]:
    """The same by their paths."""
    return {file.path: file for file in source_files()}


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of the functions of a module. Methods are omitted."""
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
