"""Package attributes that are imported on first use, and that `dir`, `help`, `import *` and completion see.

    __getattr__, __dir__ = lazy_names(__name__, {"Producer": "ottla.clients.producer"})

The package lists the same names in `__all__`, for type checkers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose names are defined in these modules."""

    def get(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            loaded = importlib.import_module(module)
        except AttributeError as error:  # an AttributeError would mean that the name does not exist
            raise ImportError(f"{module} cannot be imported: {error}") from error
        value: object = getattr(loaded, name)
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names


class LazyModule:
    """A module that is imported when one of its names is first used. Type checkers need the import in addition."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module(self._name), name)
