"""The record kernels: the compiled ones where they were built, otherwise those in plain Python.

`_kernels.py` is source for Cython and not meant to run as it is (that would need Cython at run time and be slower than
the fallback), so only an extension module of that name counts. An extension beside the `.py` wins in the import
system. OTTLA_KERNELS=fallback forces plain Python; OTTLA_KERNELS=compiled makes their absence an ImportError.
"""

import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from types import ModuleType


def is_compiled() -> bool:
    """Whether the import system would find the kernels as an extension module."""
    spec = find_spec("ottla.records._kernels")
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def _choose() -> ModuleType:
    wish = os.environ.get("OTTLA_KERNELS", "auto")
    if wish != "fallback" and is_compiled():
        from ottla.records import _kernels

        return _kernels
    if wish == "compiled":
        raise ImportError("OTTLA_KERNELS=compiled, but the record kernels are not built here")
    from ottla.records import _kernels_fallback

    return _kernels_fallback


_chosen = _choose()

COMPILED: bool = _chosen.COMPILED
decode_keys = _chosen.decode_keys
decode_records = _chosen.decode_records
encode_records = _chosen.encode_records
keep_records = _chosen.keep_records
murmur2 = _chosen.murmur2
scan_batches = _chosen.scan_batches
walk_records = _chosen.walk_records
