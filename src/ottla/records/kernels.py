"""The record kernels: the compiled ones where they were built, otherwise those in plain Python.

`_kernels.py` and its like are source for Cython and not meant to run as they are (that would need Cython at run time
and be slower than the fallback), so only an extension module of that name counts. An extension beside the `.py` wins
in the import system. OTTLA_KERNELS=fallback forces plain Python; OTTLA_KERNELS=compiled makes their absence an
ImportError. Those that make columns, for clients, are in `column_kernels`.
"""

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from types import ModuleType


def is_compiled(name: str = "_kernels") -> bool:
    """Whether the import system would find these kernels as an extension module."""
    spec = find_spec(f"ottla.records.{name}")
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def choose(name: str = "_kernels") -> ModuleType:
    """The module of these kernels that serves here."""
    wish = os.environ.get("OTTLA_KERNELS", "auto")
    if wish != "fallback" and is_compiled(name):
        return import_module(f"ottla.records.{name}")
    if wish == "compiled":
        raise ImportError(f"OTTLA_KERNELS=compiled, but ottla.records.{name} is not built here")
    return import_module(f"ottla.records.{name}_fallback")


_chosen = choose()

COMPILED: bool = _chosen.COMPILED
append_record = _chosen.append_record
decode_keys = _chosen.decode_keys
decode_records = _chosen.decode_records
encode_records = _chosen.encode_records
keep_records = _chosen.keep_records
murmur2 = _chosen.murmur2
plain_batch = _chosen.plain_batch
scan_batches = _chosen.scan_batches
walk_records = _chosen.walk_records
