"""Loads kernels from their sources, whether or not they are compiled here, so that one suite tests both forms."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType

from ottla.common.kernels import SourceFinder


@cache
def _load(package: str, names: tuple[str, ...]) -> dict[str, ModuleType]:
    """Import modules of a package anew, with its kernels uncompiled, and put the previous modules back."""
    parent = importlib.import_module(package)
    full = {name: f"{package}.{name}" for name in names}
    built = {name: importlib.import_module(path) for name, path in full.items()}
    finder = SourceFinder()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        for path in full.values():
            del sys.modules[path]
        return {name: importlib.import_module(path) for name, path in full.items()}
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        for name, module in built.items():
            sys.modules[full[name]] = module
            setattr(parent, name, module)


def record_kernels() -> dict[str, ModuleType]:
    """The kernels of `ottla.records`, uncompiled."""
    return _load("ottla.records", ("_record_reader", "_record_writer", "_survey", "_decode_columns", "_encode_columns"))
