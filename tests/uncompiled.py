"""Loads kernels from their sources, whether or not they are compiled here, so that one suite tests both forms."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from ottla.common.kernels import ignore_extensions


@cache
def _load(package: str, names: tuple[str, ...]) -> dict[str, ModuleType]:
    """Import modules of a package again, with its kernels uncompiled, and put the previous modules back."""
    parent = importlib.import_module(package)
    directory = Path(parent.__path__[0])
    full = {name: f"{package}.{name}" for name in names}
    built = {name: importlib.import_module(path) for name, path in full.items()}
    finder = sys.path_importer_cache[str(directory)]
    ignore_extensions(directory)
    try:
        for path in full.values():
            del sys.modules[path]
        return {name: importlib.import_module(path) for name, path in full.items()}
    finally:
        sys.path_importer_cache[str(directory)] = finder
        for name, module in built.items():
            sys.modules[full[name]] = module
            setattr(parent, name, module)


def record_kernels() -> dict[str, ModuleType]:
    """The kernels of `ottla.records`, uncompiled."""
    names = ("_record_reader", "_record_writer", "_survey", "_decode_columns", "_encode_columns", "_framed_fields")
    return _load("ottla.records", names)


def codecs() -> dict[str, ModuleType]:
    """The codecs of `ottla.protocol`, uncompiled."""
    return _load("ottla.protocol", ("_shapes", "_decoding", "_encoding"))


def request_counter() -> ModuleType:
    """The kernel of `ottla.broker.metrics`, uncompiled."""
    return _load("ottla.broker.metrics", ("_request_counter",))["_request_counter"]
