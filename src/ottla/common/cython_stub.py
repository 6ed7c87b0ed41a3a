"""Replaces the `cython` module for kernels that run uncompiled where Cython is not installed.

A kernel reads `cython.compiled` to determine which form of it runs. It uses all other names of Cython only if that is
true.
"""

from typing import Final

compiled: Final = False
