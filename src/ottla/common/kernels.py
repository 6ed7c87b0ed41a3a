"""Chooses between the compiled form of the kernels and their source.

A kernel is a module `_NAME.py` with its C types in `_NAME.pxd`. Cython compiles it to an extension, which the import
system prefers to the source beside it. OTTLA_KERNELS changes that: `fallback` runs the sources although there are
extensions, `compiled` makes a missing extension an ImportError. `ottla/__init__.py` calls `choose` before any kernel is
imported.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

PACKAGES = ("ottla.records", "ottla.protocol", "ottla.serde")


def is_kernel(name: str, path: Sequence[str] | None) -> bool:
    """Whether a module is a kernel: one with C types beside it."""
    package, _, stem = name.rpartition(".")
    return package in PACKAGES and path is not None and any(Path(place, f"{stem}.pxd").exists() for place in path)


def is_compiled(name: str) -> bool:
    """Whether importing this module loads an extension."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


class SourceFinder:
    """Finds the sources of kernels, on `sys.meta_path` before the finder that would find their extensions."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the import system passes it
    ) -> ModuleSpec | None:
        if not is_kernel(fullname, path):
            return None
        for place in path or ():
            spec = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if spec is not None:
                return spec
        return None


class ExtensionFinder:
    """Refuses kernels that were not compiled."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if is_kernel(fullname, path):
            stem = fullname.rpartition(".")[2]
            if not any(Path(place, stem + suffix).exists() for place in path or () for suffix in EXTENSION_SUFFIXES):
                raise ImportError(f"OTTLA_KERNELS=compiled, but {fullname} is not compiled here")


def choose(wish: str) -> None:
    """Obey OTTLA_KERNELS from the next import of a kernel on."""
    if wish == "fallback":
        sys.meta_path.insert(0, SourceFinder())
    elif wish == "compiled":
        sys.meta_path.insert(0, ExtensionFinder())
