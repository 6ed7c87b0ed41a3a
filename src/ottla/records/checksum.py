"""CRC-32C, from the compiled extension of the `crc32c` library.

The library's package reads its own metadata on import, for which it imports `email` and `zipfile`. That takes 28 ms, a
seventh of a broker's start. So only its extension is loaded, and the package only if that fails.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

_Compute = Callable[[bytes | bytearray | memoryview], int]


def _load() -> _Compute:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        compute: _Compute = module.crc32c
        return compute
    from crc32c import crc32c as compute

    return compute


crc32c = _load()
"""Computes the CRC-32C (Castagnoli) of data."""
