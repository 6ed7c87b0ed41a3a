"""Loads the kernels of `ottla.serde`, and the modules that import them, as plain Python, even if extensions exist."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import ottla.serde

# Each module imports previous ones.
KERNELS = (
    "_views", "_builders", "_avro", "_avro_write", "avro", "avro_writing", "avro_checks",
    "_texts", "_times", "_json_text", "_json_scalars", "_json", "_json_writer",
)  # fmt: skip


@cache
def _all() -> dict[str, ModuleType]:
    names = {name: f"ottla.serde.{name}" for name in KERNELS}
    built = {name: importlib.import_module(full) for name, full in names.items()}
    found = {}
    try:
        for full in names.values():
            del sys.modules[full]
        for name, full in names.items():
            loader = SourceFileLoader(full, str(Path(ottla.serde.__file__).with_name(f"{name}.py")))
            spec = importlib.util.spec_from_loader(full, loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            setattr(ottla.serde, name, module)
            loader.exec_module(module)
            found[name] = module
    finally:
        for name, module in built.items():
            sys.modules[names[name]] = module
            setattr(ottla.serde, name, module)
    return found


def plain(name: str) -> ModuleType:
    """Return the module of that name; it uses the plain Python version of the other modules."""
    return _all()[name]
