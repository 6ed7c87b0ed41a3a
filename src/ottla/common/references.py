"""Detects buffers that only the pool references, so that they can be reused."""

import sys
from collections.abc import Sequence


def _references(kept: Sequence[object], index: int) -> int:
    item = kept[index]
    return sys.getrefcount(item)


# The number of references from the list and from the counting itself, which depends on the Python version.
_ONLY_THE_LIST = _references([object()], 0)


def is_free(kept: Sequence[object], index: int) -> bool:
    """Whether only `kept` refers to its item. A view of a buffer is a reference while it exists."""
    return _references(kept, index) <= _ONLY_THE_LIST
