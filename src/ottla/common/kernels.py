"""Chooses between the compiled form of the kernels and their source.

A kernel is a module `_NAME.py` with its C types in `_NAME.pxd`. Cython compiles it to an extension, which the import
system prefers to the source beside it. OTTLA_KERNELS changes that: `fallback` runs the sources even if extensions
exist, and `compiled` makes a missing extension an ImportError. `ottla/__init__.py` calls `choose` before any kernel is
imported.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path

_NAMES = ("records", "protocol", "serde", "clients/producer", "broker/metrics")
PACKAGES = tuple(Path(__file__).parents[1] / name for name in _NAMES)


def is_compiled(name: str) -> bool:
    """Whether importing this module loads an extension."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def ignore_extensions(package: Path) -> None:
    """Import the modules of this directory from their sources after this call."""
    sys.path_importer_cache[str(package)] = FileFinder(str(package), (SourceFileLoader, SOURCE_SUFFIXES))


def missing_extensions() -> list[str]:
    """The kernels that are not compiled."""
    return [
        f"{package.name}/{types.stem}"
        for package in PACKAGES
        for types in sorted(package.glob("*.pxd"))
        if types.with_suffix(".py").exists()
        and not any(package.joinpath(types.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)
    ]


def choose(wish: str) -> None:
    """Apply OTTLA_KERNELS to all later imports of kernels."""
    if wish == "fallback":
        for package in PACKAGES:
            ignore_extensions(package)
    elif wish == "compiled":
        missing = missing_extensions()
        if missing:
            raise ImportError(f"OTTLA_KERNELS=compiled, but these kernels are not compiled here: {', '.join(missing)}")
