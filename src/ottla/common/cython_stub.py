"""Stands in for the `cython` module where kernels run uncompiled and Cython is not installed.

A kernel asks `cython.compiled` which form of it runs. Everything else of Cython stands behind that question.
"""

from typing import Final

compiled: Final = False
